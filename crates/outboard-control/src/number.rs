//! How a session's number is written, wherever people see it: in listings, in the log, in traces.

use std::fmt;

/// A session's number.
pub struct Number(pub u64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
