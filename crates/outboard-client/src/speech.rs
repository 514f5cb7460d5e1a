//! What the library says to people.

use std::fmt::Display;

/// Says a sentence on standard error. A CUDA program expects no output from its driver; the
/// variable `OUTBOARD_LOG` turns it on.
pub(crate) fn say(sentence: impl Display) {
    if std::env::var_os("OUTBOARD_LOG").is_some() {
        outboard_threads::say(sentence);
    }
}
