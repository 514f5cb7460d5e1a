//! How long a program takes to its first kernel's end, by kinds of clients in turns.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// How often each is run; the median counts.
const TIMES: usize = 5;

/// The times of a client of a kind and of a plain one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct First {
    kind: Duration,
    plain: Duration,
}

impl First {
    /// Runs both in turns; each is a program that launches a kernel, waits for it and ends.
    pub(crate) fn of(
        plain: impl Fn() -> Result<Command>,
        kind: impl Fn() -> Result<Command>,
    ) -> Result<First> {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..TIMES {
            times[0].push(time(plain()?)?);
            times[1].push(time(kind()?)?);
        }
        let [plain, kind] = times.map(median);
        Ok(First { kind, plain })
    }

    /// The text of a table.
    pub(crate) fn text(self) -> String {
        let ratio = self.kind.as_secs_f64() / self.plain.as_secs_f64();
        format!("{:.2} s, {ratio:.1} times a plain client's", self.kind.as_secs_f64())
    }
}

fn time(mut command: Command) -> Result<Duration> {
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output().context("cannot start a client")?;
    let took = begin.elapsed();
    if !output.status.success() {
        bail!("a client failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_one_takes_longer() {
        let run = |line: &'static str| {
            move || {
                let mut command = Command::new("sh");
                command.args(["-c", line]);
                Ok(command)
            }
        };
        let first = First::of(run("exit 0"), run("sleep 0.2")).unwrap();
        assert!(first.kind > first.plain && first.kind >= Duration::from_millis(200));
        assert!(First::of(run("exit 0"), run("echo why >&2; exit 3")).is_err());
    }

    #[test]
    fn the_ratio_is_said() {
        let first = First { kind: Duration::from_millis(300), plain: Duration::from_millis(200) };
        assert_eq!(first.text(), "0.30 s, 1.5 times a plain client's");
        assert_eq!(median([3, 1, 2].map(Duration::from_secs).into()), Duration::from_secs(2));
    }
}
