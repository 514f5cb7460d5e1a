//! The log of errors.

use core::ffi::{c_char, c_uint, c_void};
use std::io::Write as _;
use std::sync::atomic::Ordering;

use outboard_abi::{CUlogIterator, CUlogsCallback, CUlogsCallbackHandle, CUresult};

use crate::backend::{Backend, Result};
use crate::border::{put, put_if, require, text};
use crate::logs::{Listener, Message, because};
use crate::process::{Front, Process};

/// Stands before what is left of messages that have been dropped, or did not fit.
const CUT: &str = "earlier messages are not there any more, or did not fit\n";

/// The sentences from message `from` on, or all; whether some are not there any more; the number of
/// the next message.
fn read(front: &Front, from: Option<u32>) -> (Vec<String>, bool, u32) {
    let log = front.logs.log.lock();
    let count = log.messages.len() as u32;
    let next = log.first.wrapping_add(count);
    // Numbers wrap around: behind the next one means before the first.
    let missed =
        from.map_or(log.first != 0, |from| next.wrapping_sub(from) > count && next != from);
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
    outboard_threads::writing(write).map_err(|error| {
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

/// The most recent sentences that fit, with a word before them if they are not all; `None` if there
/// are some and none fits.
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
        assert_eq!(
            fit(&sentences, false, 299).unwrap(),
            format!("{CUT}{}{}", sentences[1], sentences[2])
        );
        assert_eq!(
            fit(&sentences, false, CUT.len() + 100).unwrap(),
            format!("{CUT}{}", sentences[2])
        );
        assert_eq!(fit(&sentences, false, CUT.len() + 99), None);
        assert_eq!(fit(&sentences, true, 400).unwrap(), format!("{CUT}{}", sentences.concat()));
        assert_eq!(fit(&[], false, 0).unwrap(), "");
    }
}
