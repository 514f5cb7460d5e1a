//! The end of what goes on beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag when it is dropped, even if the test fails: threads that look at it end.
#[derive(Debug)]
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
