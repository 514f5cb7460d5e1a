//! Waiting for what another process does.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Waits until it is so.
pub(crate) fn within(
    limit: Duration,
    what: &str,
    is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    took(limit, what, is_so).map(drop)
}

/// The same; how long it took.
pub(crate) fn took(
    limit: Duration,
    what: &str,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let begin = Instant::now();
    loop {
        if is_so()? {
            return Ok(begin.elapsed());
        }
        if begin.elapsed() > limit {
            bail!("not within {} s: {what}", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
