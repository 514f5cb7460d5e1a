//! A job's time limit, as Slurm writes it.

/// What a job gets where there is no limit.
const YEAR: u32 = 365 * 24 * 3600;

/// The seconds of `[DAYS-]HOURS:MINUTES:SECONDS`, `MINUTES:SECONDS` or `UNLIMITED`. Nothing for a
/// job without a limit.
pub(super) fn seconds(text: &str) -> Result<Option<u32>, String> {
    let text = text.trim();
    if text == "UNLIMITED" {
        return Ok(None);
    }
    let seconds = read(text).ok_or_else(|| format!("`{text}` is no time limit of Slurm's"))?;
    Ok(Some(seconds).filter(|seconds| *seconds < YEAR))
}

fn read(text: &str) -> Option<u32> {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let parts: Vec<u32> = rest.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    let clock = parts.iter().try_fold(0_u32, |sum, part| sum.checked_mul(60)?.checked_add(*part));
    days.parse::<u32>().ok()?.checked_mul(24 * 3600)?.checked_add(clock?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_slurm_writes_them() {
        for (text, wanted) in [
            ("1:00\n", Some(60)),
            ("1:30:05", Some(5405)),
            ("2-03:00:00", Some(2 * 86400 + 3 * 3600)),
            ("UNLIMITED", None),
            ("365-00:00:00", None),
        ] {
            assert_eq!(seconds(text), Ok(wanted), "{text}");
        }
        for text in ["", "5", "NOT_SET", "INVALID", "1:-1", "999999-00:00:00", "1:2:3:4"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
