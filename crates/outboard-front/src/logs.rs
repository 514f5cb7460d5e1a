//! The log of errors: what each failed call was, why, and what to do about it.
//!
//! Calls that fail leave a few words here; sentences are made of them when somebody reads. So a program that provokes errors by the thousand
//! pays little for each.

use core::cell::{Cell, RefCell};
use core::ffi::{c_char, c_uint, c_void};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use outboard_abi::{CUlogIterator, CUlogLevel, CUlogsCallback, CUlogsCallbackHandle, CUresult};
use parking_lot::Mutex;

use crate::backend::{Backend, Result};
use crate::border::{put, put_if, require, text};
use crate::generated::symbols::{SYMBOLS, why_not};
use crate::init::errors;
use crate::process::{Front, Process};

mod advice;

/// Bytes of sentences that are kept; the most that cuda.h lets a reader expect.
const KEPT: usize = 25_600;
/// Stands before what is left of messages that have been dropped, or did not fit.
const CUT: &str = "earlier messages are not there any more, or did not fit\n";
/// No reason is longer, in bytes: compilers say a lot.
const LONGEST_REASON: usize = 2048;

type Reason = Cow<'static, str>;

/// A call that failed.
struct Message {
    symbol: usize,
    error: CUresult,
    reason: Option<Reason>,
    at: SystemTime,
}

struct Log {
    messages: VecDeque<Message>,
    /// The number of the first of them.
    first: u32,
    /// What their sentences take, about.
    bytes: usize,
}

/// A function of the program, and what it is called with.
#[derive(Clone, Copy)]
struct Listener {
    handle: usize,
    function: unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize),
    data: usize,
}

/// The errors of a process, and who is told of them.
pub(crate) struct Logs {
    log: Mutex<Log>,
    listeners: Mutex<Vec<Listener>>,
    /// How many there are: nobody formats for none.
    listening: AtomicUsize,
    /// Of listeners: multiples of 16, never used again.
    next_handle: AtomicUsize,
}

impl Logs {
    pub(crate) const fn new() -> Logs {
        Logs {
            log: Mutex::new(Log { messages: VecDeque::new(), first: 0, bytes: 0 }),
            listeners: Mutex::new(Vec::new()),
            listening: AtomicUsize::new(0),
            next_handle: AtomicUsize::new(0x1_0000),
        }
    }
}

/// How many threads have a reason that is not used yet: calls that succeed look at no more than this.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Why the call at hand fails, if somebody on the way knows.
    static REASON: RefCell<Option<Reason>> = const { RefCell::new(None) };
    /// Whether a listener is being called: its own errors are not told to it.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Message {
    fn sentence(&self) -> String {
        let symbol = SYMBOLS.get(self.symbol).copied().unwrap_or("a private function");
        let (name, meaning) = errors::find(self.error).map_or(("an unknown error", ""), |(name, text)| {
            (name.to_str().unwrap_or_default(), text.to_str().unwrap_or_default())
        });
        let seconds = self.at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let refused = || (self.error == CUresult::CUDA_ERROR_NOT_SUPPORTED).then(|| why_not(self.symbol)).flatten();
        let why = self.reason.as_deref().or_else(refused).or_else(|| advice::of(self.error)).unwrap_or(meaning);
        let code = self.error.0;
        format!("[{seconds:.3}][{}] {symbol} returned {name} ({code}): {why}\n", std::process::id())
    }

    fn size(&self) -> usize {
        // A sentence without its reason has about this many bytes.
        160 + self.reason.as_ref().map_or(0, |reason| reason.len())
    }
}

/// Says why the call at hand is about to fail. What is said of a call that succeeds after all is forgotten.
pub(crate) fn because(reason: impl Into<Reason>) {
    let mut reason = reason.into();
    if reason.len() > LONGEST_REASON {
        let mut end = LONGEST_REASON;
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        reason.to_mut().truncate(end);
    }
    let was_empty = REASON.try_with(|slot| slot.borrow_mut().replace(reason).is_none()).unwrap_or(false);
    if was_empty {
        GIVEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reason that was given for the call at hand, if any.
fn take_reason() -> Option<Reason> {
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

/// Notes that `SYMBOLS[symbol]` failed.
pub(crate) fn failed(front: &Front, symbol: usize, error: CUresult) {
    let reason = take_reason();
    // An answer to a question, asked again and again.
    if error == CUresult::CUDA_ERROR_NOT_READY {
        return;
    }
    let message = Message { symbol, error, reason, at: SystemTime::now() };
    if front.logs.listening.load(Ordering::Relaxed) > 0 {
        tell(front, &message);
    }
    let mut log = front.logs.log.lock();
    log.bytes += message.size();
    log.messages.push_back(message);
    while log.bytes > KEPT
        && let Some(oldest) = log.messages.pop_front()
    {
        log.bytes -= oldest.size();
        log.first = log.first.wrapping_add(1);
    }
}

/// Calls the listeners.
fn tell(front: &Front, message: &Message) {
    if TELLING.try_with(|telling| telling.replace(true)).unwrap_or(true) {
        return;
    }
    let mut sentence = message.sentence();
    // C strings end in a zero, and no line needs its end here.
    sentence.pop();
    sentence.push('\0');
    let listeners = front.logs.listeners.lock().clone();
    for listener in listeners {
        let (data, len) = (listener.data as *mut c_void, sentence.len() - 1);
        // SAFETY: the program's function and its data, registered for just this.
        unsafe { (listener.function)(data, CUlogLevel::CU_LOG_LEVEL_ERROR, sentence.as_mut_ptr().cast(), len) };
    }
    let _ = TELLING.try_with(|telling| telling.set(false));
}

/// The sentences from message `from` on, or all; whether some are not there any more; the number of the next message.
fn read(front: &Front, from: Option<u32>) -> (Vec<String>, bool, u32) {
    let log = front.logs.log.lock();
    let count = log.messages.len() as u32;
    let next = log.first.wrapping_add(count);
    // Numbers wrap around: behind the next one means before the first.
    let missed = from.map_or(log.first != 0, |from| next.wrapping_sub(from) > count && next != from);
    let skip = if missed { 0 } else { from.map_or(0, |from| count - next.wrapping_sub(from)) };
    (log.messages.iter().skip(skip as usize).map(Message::sentence).collect(), missed, next)
}

/// # Safety
/// `iterator` is null or valid.
unsafe fn start(iterator: *mut CUlogIterator) -> Option<u32> {
    // SAFETY: by the contract above.
    unsafe { iterator.as_ref() }.copied()
}

pub unsafe fn cuLogsRegisterCallback<B: Backend>(
    process: &'static Process<B>,
    function: CUlogsCallback,
    data: *mut c_void,
    out: *mut CUlogsCallbackHandle,
) -> Result<()> {
    let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let handle = process.logs.next_handle.fetch_add(16, Ordering::Relaxed);
    process.logs.listeners.lock().push(Listener { handle, function, data: data as usize });
    process.logs.listening.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the program's out parameter, which may be left out.
    unsafe { put_if(out, handle as CUlogsCallbackHandle) };
    Ok(())
}

pub unsafe fn cuLogsUnregisterCallback<B: Backend>(
    process: &'static Process<B>,
    handle: CUlogsCallbackHandle,
) -> Result<()> {
    let mut listeners = process.logs.listeners.lock();
    let at = listeners.iter().position(|listener| listener.handle == handle as usize);
    listeners.remove(at.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?);
    process.logs.listening.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

pub unsafe fn cuLogsCurrent<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUlogIterator,
    flags: c_uint,
) -> Result<()> {
    require(flags == 0 && !out.is_null())?;
    let log = process.logs.log.lock();
    // SAFETY: the program's out parameter.
    unsafe { put(out, log.first.wrapping_add(log.messages.len() as u32)) }
}

pub unsafe fn cuLogsDumpToFile<B: Backend>(
    process: &'static Process<B>,
    iterator: *mut CUlogIterator,
    path: *const c_char,
    flags: c_uint,
) -> Result<()> {
    require(flags == 0)?;
    // SAFETY: the program's iterator and string.
    let (from, path) = unsafe { (start(iterator), text(path)?) };
    let (sentences, missed, next) = read(process, from);
    let write = || {
        let mut file = std::fs::File::create(path)?;
        if missed {
            file.write_all(CUT.as_bytes())?;
        }
        sentences.iter().try_for_each(|sentence| file.write_all(sentence.as_bytes()))
    };
    write().map_err(|error| {
        because(format!("{path} cannot be written: {error}"));
        CUresult::CUDA_ERROR_INVALID_VALUE
    })?;
    // SAFETY: the program's iterator, which may be left out.
    unsafe { put_if(iterator, next) };
    Ok(())
}

pub unsafe fn cuLogsDumpToMemory<B: Backend>(
    process: &'static Process<B>,
    iterator: *mut CUlogIterator,
    buffer: *mut c_char,
    size: *mut usize,
    flags: c_uint,
) -> Result<()> {
    require(flags == 0 && !buffer.is_null() && !size.is_null())?;
    // SAFETY: the program's iterator and size.
    let (from, room) = unsafe { (start(iterator), *size) };
    let (sentences, missed, next) = read(process, from);
    // SAFETY: the program's out parameter; until something is written, nothing was.
    unsafe { size.write(0) };
    let Some(room) = room.checked_sub(1) else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
    let dump = fit(&sentences, missed, room).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: at most `size` bytes with the final zero, all of the program's buffer.
    unsafe {
        core::ptr::copy_nonoverlapping(dump.as_ptr(), buffer.cast(), dump.len());
        buffer.add(dump.len()).write(0);
        size.write(dump.len());
        put_if(iterator, next);
    }
    Ok(())
}

/// The most recent sentences that fit, with a word before them if they are not all; `None` if there are some and none fits.
fn fit(sentences: &[String], missed: bool, room: usize) -> Option<String> {
    let total: usize = sentences.iter().map(String::len).sum();
    if !missed && total <= room {
        return Some(sentences.concat());
    }
    let mut left = room.checked_sub(CUT.len())?;
    let fitting = sentences.iter().rev().take_while(|sentence| {
        let fits = sentence.len() <= left;
        left -= if fits { sentence.len() } else { 0 };
        fits
    });
    match fitting.count() {
        0 if !sentences.is_empty() => None,
        count => Some(CUT.to_owned() + &sentences[sentences.len() - count..].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_from_the_front() {
        let sentences: Vec<String> = ["a", "b", "c"].map(|letter| letter.repeat(99) + "\n").into();
        assert_eq!(fit(&sentences, false, 300).unwrap(), sentences.concat());
        assert_eq!(fit(&sentences, false, 299).unwrap(), format!("{CUT}{}{}", sentences[1], sentences[2]));
        assert_eq!(fit(&sentences, false, CUT.len() + 100).unwrap(), format!("{CUT}{}", sentences[2]));
        assert_eq!(fit(&sentences, false, CUT.len() + 99), None);
        assert_eq!(fit(&sentences, true, 400).unwrap(), format!("{CUT}{}", sentences.concat()));
        assert_eq!(fit(&[], false, 0).unwrap(), "");
    }

    #[test]
    fn sentences_name_function_error_and_reason() {
        let at = SystemTime::now();
        let message = Message { symbol: 0, error: CUresult::CUDA_ERROR_INVALID_CONTEXT, reason: None, at };
        let sentence = message.sentence();
        assert!(sentence.contains(SYMBOLS[0]) && sentence.contains("CUDA_ERROR_INVALID_CONTEXT (201)"), "{sentence}");
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
