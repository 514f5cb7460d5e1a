//! How many workers may wait.

use std::fmt;
use std::str::FromStr;

use crate::cgroup;

/// The least and the most workers that wait for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The number kept even without clients.
    pub least: usize,
    /// No more wait, however many clients come at once.
    pub most: usize,
    /// Nobody has chosen them: workers beyond the least take only a small part of each device's
    /// memory.
    pub chosen_here: bool,
}

/// The most that anybody may ask for.
const MOST_WARM: usize = 64;
/// The most that is chosen unasked: more drivers than these take long to start again once they were
/// taken.
const MOST_UNASKED: usize = 16;

/// Bytes of this machine's memory for each of those: a process with NVIDIA's driver and a context
/// has some hundred MiB of it.
const HOST_MEMORY: u64 = 4 << 30;
/// Files that the server may open for each of them: a worker takes two, and sessions are to have
/// most.
const FILES: usize = 64;

impl Bounds {
    /// Always so many.
    pub fn fixed(count: usize) -> Bounds {
        Bounds { least: count, most: count, chosen_here: false }
    }

    /// One, and while clients come at once as many as this machine has processors and memory for.
    pub fn usual() -> Bounds {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = usize::try_from(cgroup::memory() / HOST_MEMORY).unwrap_or(usize::MAX);
        Bounds { least: 1, most: processors.min(memory).clamp(1, MOST_UNASKED), chosen_here: true }
    }

    /// The same for a server that may open that many files, unless the number was configured.
    pub(crate) fn within(self, files: usize) -> Bounds {
        if !self.chosen_here {
            return self;
        }
        Bounds { most: (files / FILES).clamp(self.least, self.most), ..self }
    }
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Bounds, String> {
        if text == "auto" {
            return Ok(Bounds::usual());
        }
        let wrong = || {
            format!(
                "`{text}` is neither a number (0 to {MOST_WARM}), a range of them such as 1-8, nor `auto`"
            )
        };
        let count = |text: &str| {
            text.trim().parse().ok().filter(|count| *count <= MOST_WARM).ok_or_else(wrong)
        };
        let Some((least, most)) = text.split_once('-') else {
            return Ok(Bounds::fixed(count(text)?));
        };
        let (least, most) = (count(least)?, count(most)?);
        (least <= most).then_some(Bounds { least, most, chosen_here: false }).ok_or_else(wrong)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most {
            write!(f, "{}", self.least)
        } else {
            write!(f, "{}-{}", self.least, self.most)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_a_range_or_auto() {
        assert_eq!("3".parse(), Ok(Bounds::fixed(3)));
        assert_eq!("1-8".parse(), Ok(Bounds { least: 1, most: 8, chosen_here: false }));
        assert_eq!("0 - 64".parse(), Ok(Bounds { least: 0, most: 64, chosen_here: false }));
        let unasked: Bounds = "auto".parse().unwrap();
        assert!(unasked.least == 1 && (1..=MOST_UNASKED).contains(&unasked.most));
        for text in [
            "",
            "-",
            "-1",
            "1-",
            "8-1",
            "65",
            "1-65",
            "1-2-3",
            "many",
            "1.5",
            "99999999999999999999",
        ] {
            assert!(text.parse::<Bounds>().unwrap_err().contains("range"), "{text}");
        }
        assert_eq!(
            (Bounds::fixed(2).to_string(), "1-8".parse::<Bounds>().unwrap().to_string()),
            ("2".into(), "1-8".into())
        );
    }
}
