//! Counters for `OUTBOARD_STATS_FILE`: what this process asked of the driver, written as JSON when it exits.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::backend::Backend;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ENTERED: AtomicU64 = AtomicU64::new(0);

/// Counts a call of an entry point, if anybody wants to know.
pub(crate) fn entered() {
    if COUNTING.load(Ordering::Relaxed) {
        ENTERED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes the statistics at exit when the variable names a file.
pub(crate) fn at_exit<B: Backend>() {
    if std::env::var_os("OUTBOARD_STATS_FILE").is_none() || COUNTING.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the handler touches only statics, which outlive it.
    unsafe { libc::atexit(write::<B>) };
}

extern "C" fn write<B: Backend>() {
    if crate::state::is_forked() {
        return;
    }
    let _ = std::panic::catch_unwind(|| {
        let Some(path) = std::env::var_os("OUTBOARD_STATS_FILE") else { return };
        let mut json = format!("{{\"entered\": {}", ENTERED.load(Ordering::Relaxed));
        for (name, value) in B::get().statistics() {
            let _ = write!(json, ", \"{name}\": {value}");
        }
        json.push_str("}\n");
        let _ = std::fs::write(path, json);
    });
}
