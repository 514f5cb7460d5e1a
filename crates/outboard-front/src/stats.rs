//! Counters for `OUTBOARD_STATS_FILE`: what this process asked of the driver, written as JSON when it exits. `%p` in the
//! name becomes the number of the process, so that each of several processes has a file of its own.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use outboard_abi::CUresult;

use crate::backend::Backend;
use crate::generated::driver::SYMBOLS;
use crate::refusals;

static COUNTING: AtomicBool = AtomicBool::new(false);
static CALLS: [AtomicU64; SYMBOLS.len()] = [const { AtomicU64::new(0) }; SYMBOLS.len()];

/// How often a symbol returned an error (upper half) and the last one (lower half).
static ERRORS: [AtomicU64; SYMBOLS.len()] = [const { AtomicU64::new(0) }; SYMBOLS.len()];

/// Stands for the functions of private tables, whose calls are not counted.
pub(crate) const PRIVATE: usize = usize::MAX;

/// Counts a call of entry point `symbol`, if anybody wants to know.
pub(crate) fn entered(symbol: usize) {
    if COUNTING.load(Ordering::Relaxed)
        && let Some(calls) = CALLS.get(symbol)
    {
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts an error that entry point `symbol` returns, if anybody wants to know.
#[cold]
pub(crate) fn failed(symbol: usize, error: CUresult) {
    if COUNTING.load(Ordering::Relaxed)
        && let Some(errors) = ERRORS.get(symbol)
    {
        let next = |errors: u64| Some(((errors >> 32) + 1) << 32 | u64::from(error.0));
        let _ = errors.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

/// Whether anybody wants to know.
pub(crate) fn counting() -> bool {
    COUNTING.load(Ordering::Relaxed)
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
        let calls: Vec<(&str, u64)> = SYMBOLS
            .into_iter()
            .zip(CALLS.iter().map(|calls| calls.load(Ordering::Relaxed)))
            .filter(|(_, n)| *n > 0)
            .collect();
        let mut json = format!("{{\"entered\": {}", calls.iter().map(|(_, n)| n).sum::<u64>());
        let statistics = B::get().statistics();
        // What the backend neither posted nor waited for was answered from what the client knows.
        let count =
            |wanted| statistics.iter().find(|(name, _)| *name == wanted).and_then(|(_, n)| n.parse::<u64>().ok());
        let sent = count("posted").unwrap_or(0) + count("waited").unwrap_or(0);
        let _ = write!(json, ", \"local\": {}", calls.iter().map(|(_, n)| n).sum::<u64>().saturating_sub(sent));
        for (name, value) in statistics {
            let _ = write!(json, ", \"{name}\": {value}");
        }
        json.push_str(", \"functions\": {");
        for (index, (symbol, count)) in calls.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(json, "{comma}\"{symbol}\": {count}");
        }
        json.push_str("}, \"errors\": {");
        let functions = SYMBOLS.into_iter().zip(ERRORS.iter().map(|errors| errors.load(Ordering::Relaxed)));
        let failed = functions
            .filter(|(_, errors)| *errors > 0)
            .map(|(symbol, errors)| (symbol.to_owned(), errors >> 32, errors & 0xffff_ffff));
        let refused = refusals::refused().into_iter().map(|(name, count, last)| (name, count, u64::from(last.0)));
        for (index, (name, count, last)) in failed.chain(refused).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(json, "{comma}\"{name}\": {{\"count\": {count}, \"last\": {last}}}");
        }
        json.push_str("}}\n");
        let _ = std::fs::write(with_process(&path, std::process::id()), json);
    });
}

/// The name of the file, with the number of the process for each `%p`.
fn with_process(path: &OsStr, process: u32) -> OsString {
    let mut named = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(b"%p") {
            named.extend_from_slice(process.to_string().as_bytes());
            rest = behind;
        } else {
            named.push(*first);
            rest = others;
        }
    }
    OsString::from_vec(named)
}

#[cfg(test)]
mod tests {
    use super::with_process;

    #[test]
    fn the_process_is_put_into_the_name() {
        assert_eq!(with_process("a/%p.json".as_ref(), 7), "a/7.json");
        assert_eq!(with_process("%p%p%".as_ref(), 12), "1212%");
        assert_eq!(with_process("plain".as_ref(), 12), "plain");
    }
}
