//! Waiting for what another process does.

use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// Waits until it is so.
pub(crate) fn within(
    limit: Duration,
    what: &str,
    is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    took(limit, what, is_so).map(drop)
}

/// The same; how long it took. A question that fails is asked again: whoever answers it may be busy
/// or yet to come.
pub(crate) fn took(
    limit: Duration,
    what: &str,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let begin = Instant::now();
    loop {
        let answer = is_so();
        if let Ok(true) = answer {
            return Ok(begin.elapsed());
        }
        if begin.elapsed() > limit {
            let late = format!("not within {} s: {what}", limit.as_secs());
            answer.with_context(|| late.clone())?;
            bail!(late);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
