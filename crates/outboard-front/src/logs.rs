//! The log of errors: what each failed call was, why, and what to do about it.
//!
//! A failed call stores only a few words, and sentences are made when the log is read: a program
//! that provokes thousands of errors pays little for each.

pub(crate) mod advice;

use core::cell::{Cell, RefCell};
use core::ffi::{c_char, c_void};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use outboard_abi::{CUlogLevel, CUresult};
use parking_lot::{Mutex, MutexGuard};

use crate::errors;
use crate::generated::symbols::{SYMBOLS, why_not};

/// Bytes of sentences that are kept; the most that cuda.h lets a reader expect.
const KEPT_BYTES: usize = 25_600;

/// No reason is longer, in bytes: compilers say a lot.
pub(crate) const LONGEST_REASON: usize = 2048;

type Reason = Cow<'static, str>;

/// A call that failed.
pub(crate) struct Message {
    symbol: usize,
    error: CUresult,
    reason: Option<Reason>,
    at: SystemTime,
    /// The thread that made the call, as `pthread_self` names it.
    thread: u64,
}

pub(crate) struct Log {
    pub(crate) messages: VecDeque<Message>,
    /// The number of the first of them.
    pub(crate) first: u32,
    /// What their sentences take, about.
    bytes: usize,
}

/// A callback of the program, with its argument.
#[derive(Clone, Copy)]
pub(crate) struct Listener {
    pub(crate) handle: usize,
    pub(crate) function: unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize),
    pub(crate) data: usize,
}

/// The errors of a process, and the callbacks for them.
pub(crate) struct Logs {
    pub(crate) log: Mutex<Log>,
    pub(crate) listeners: Mutex<Vec<Listener>>,
    /// How many there are: without callbacks, no sentence is formatted.
    pub(crate) listening: AtomicUsize,
    /// Of listeners: multiples of 16, never used again.
    pub(crate) next_handle: AtomicUsize,
    /// What `CUDA_LOG_FILE` named at the first error: each error is written there.
    file: OnceLock<Option<PathBuf>>,
}

impl Logs {
    pub(crate) const fn new() -> Logs {
        Logs {
            log: Mutex::new(Log { messages: VecDeque::new(), first: 0, bytes: 0 }),
            listeners: Mutex::new(Vec::new()),
            listening: AtomicUsize::new(0),
            next_handle: AtomicUsize::new(0x1_0000),
            file: OnceLock::new(),
        }
    }

    /// In a forked child, another thread of the parent's may have been about to look.
    fn file(&self, forked: bool) -> Option<&Path> {
        if forked {
            return self.file.get()?.as_deref();
        }
        let named = || std::env::var_os("CUDA_LOG_FILE").filter(|name| !name.is_empty());
        self.file.get_or_init(|| named().map(PathBuf::from)).as_deref()
    }
}

/// How many threads have a reason that is not used yet: calls that succeed look at no more than
/// this.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Why the present call fails, if the code that detected it has said so.
    static REASON: RefCell<Option<Reason>> = const { RefCell::new(None) };
    /// Whether a listener is being called: its own errors are not told to it.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Message {
    /// A line as NVIDIA's driver writes it (seen with release 580), with the reason behind it.
    pub(crate) fn sentence(&self) -> String {
        let symbol = SYMBOLS.get(self.symbol).copied().unwrap_or("a private function");
        let (name, meaning) = errors::find(self.error)
            .map_or(("an unknown error", ""), |(name, text)| {
                (name.to_str().unwrap_or_default(), text.to_str().unwrap_or_default())
            });
        let refused = || {
            (self.error == CUresult::CUDA_ERROR_NOT_SUPPORTED)
                .then(|| why_not(self.symbol))
                .flatten()
        };
        let why = self
            .reason
            .as_deref()
            .or_else(refused)
            .or_else(|| advice::of(self.error))
            .unwrap_or(meaning);
        let (time, thread, code) = (time_of_day(self.at), self.thread, self.error.0);
        format!("[{time}][{thread}][CUDA][E] Returning {code} ({name}) from {symbol}: {why}\n")
    }

    fn size(&self) -> usize {
        // A sentence without its reason has about this many bytes.
        160 + self.reason.as_ref().map_or(0, |reason| reason.len())
    }
}

/// The time of a day in UTC, with milliseconds.
fn time_of_day(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs(), since.subsec_millis());
    let [hours, minutes, seconds] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    format!("{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}")
}

/// Whether an error of this function is an answer to a library that asks what there is.
fn is_question(symbol: usize) -> bool {
    symbol == crate::profile::PRIVATE || SYMBOLS.get(symbol) == Some(&"cuGetExportTable")
}

/// Sets the reason why the present call is about to fail. The reason is dropped if the call
/// succeeds after all.
pub(crate) fn because(reason: impl Into<Reason>) {
    let mut reason = reason.into();
    if reason.len() > LONGEST_REASON {
        let mut end = LONGEST_REASON;
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        reason.to_mut().truncate(end);
    }
    let was_empty =
        REASON.try_with(|slot| slot.borrow_mut().replace(reason).is_none()).unwrap_or(false);
    if was_empty {
        GIVEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reason set for the present call, if any.
pub(crate) fn take_reason() -> Option<Reason> {
    let reason = REASON.try_with(|slot| slot.borrow_mut().take()).ok().flatten();
    if reason.is_some() {
        GIVEN.fetch_sub(1, Ordering::Relaxed);
    }
    reason
}

/// Forgets a reason that was given on the way to success.
#[inline]
pub(crate) fn succeeded() {
    if GIVEN.load(Ordering::Relaxed) > 0 {
        take_reason();
    }
}

/// Locks; in a forked child only without waiting, since who has the lock or waits for it may be a
/// thread of the parent's (docs/decisions/0040-locks.md).
fn lock<T>(mutex: &Mutex<T>, forked: bool) -> Option<MutexGuard<'_, T>> {
    if forked { mutex.try_lock() } else { Some(mutex.lock()) }
}

/// Notes that `SYMBOLS[symbol]` failed.
pub(crate) fn failed(logs: &Logs, symbol: usize, error: CUresult, forked: bool) {
    let reason = take_reason();
    // An answer to a question, asked again and again.
    if error == CUresult::CUDA_ERROR_NOT_READY {
        return;
    }
    // SAFETY: it only says which thread this is.
    let thread = unsafe { libc::pthread_self() };
    let message = Message { symbol, error, reason, at: SystemTime::now(), thread };
    // What runtimes take down while the process ends is no mistake.
    if !is_question(symbol)
        && error != CUresult::CUDA_ERROR_DEINITIALIZED
        && let Some(path) = logs.file(forked)
    {
        // Whoever asked for the log finds none if it cannot be written; no call fails for it.
        let _ = outboard_threads::writing(|| append(path, &message.sentence()));
    }
    if logs.listening.load(Ordering::Relaxed) > 0 {
        tell(logs, &message, forked);
    }
    let Some(mut log) = lock(&logs.log, forked) else { return };
    log.bytes += message.size();
    log.messages.push_back(message);
    while log.bytes > KEPT_BYTES
        && let Some(oldest) = log.messages.pop_front()
    {
        log.bytes -= oldest.size();
        log.first = log.first.wrapping_add(1);
    }
}

/// Adds a line to the file of the log, which is made with its first line. Two names are those of
/// streams. The program may close whatever is open, so that nothing is kept open.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    match path.to_str() {
        Some("stdout") => std::io::stdout().write_all(line.as_bytes()),
        Some("stderr") => std::io::stderr().write_all(line.as_bytes()),
        _ => File::options().append(true).create(true).open(path)?.write_all(line.as_bytes()),
    }
}

/// Calls the listeners.
fn tell(logs: &Logs, message: &Message, forked: bool) {
    if TELLING.try_with(|telling| telling.replace(true)).unwrap_or(true) {
        return;
    }
    let mut sentence = message.sentence();
    // C strings end in a zero, and no line needs its end here.
    sentence.pop();
    sentence.push('\0');
    let listeners = lock(&logs.listeners, forked).map(|all| all.clone()).unwrap_or_default();
    for listener in listeners {
        let (data, len) = (listener.data as *mut c_void, sentence.len() - 1);
        // SAFETY: the program's function and its data, registered for just this.
        unsafe {
            (listener.function)(
                data,
                CUlogLevel::CU_LOG_LEVEL_ERROR,
                sentence.as_mut_ptr().cast(),
                len,
            )
        };
    }
    let _ = TELLING.try_with(|telling| telling.set(false));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_name_function_error_and_reason() {
        let at = UNIX_EPOCH + std::time::Duration::from_millis(86_400_000 + 3_723_004);
        let error = CUresult::CUDA_ERROR_INVALID_CONTEXT;
        let message = Message { symbol: 0, error, reason: None, at, thread: 5 };
        let sentence = message.sentence();
        let start = "[01:02:03.004][5][CUDA][E] Returning 201 (CUDA_ERROR_INVALID_CONTEXT) from ";
        assert!(sentence.starts_with(&format!("{start}{}: ", SYMBOLS[0])), "{sentence}");
        let message = Message { reason: Some("the cat sat on it".into()), ..message };
        assert!(message.sentence().ends_with("the cat sat on it\n"));
    }

    #[test]
    fn reasons_are_bounded() {
        because("é".repeat(LONGEST_REASON));
        let kept = take_reason().unwrap();
        assert!(kept.len() <= LONGEST_REASON && kept.chars().all(|c| c == 'é'));
    }
}
