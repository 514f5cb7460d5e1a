//! Output of kernels, which goes to the program's own standard output.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
    fn flockfile(stream: *mut libc::FILE);
    fn ftrylockfile(stream: *mut libc::FILE) -> libc::c_int;
    fn funlockfile(stream: *mut libc::FILE);
}

/// One of C's standard streams. A program may have closed it, but only with undefined results of
/// its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Output(*mut libc::FILE);

// SAFETY: C's streams are for all threads.
unsafe impl Send for Output {}

/// A stream that no other thread writes to meanwhile.
struct Held(Output);

/// Output that could not be printed when it arrived, in order, and whether there is any. A thread
/// that prints it holds the stream from before it takes it out until it is printed: a thread that
/// finds nothing here and prints therefore prints after it.
static UNPRINTED: Mutex<Vec<(Output, Vec<u8>)>> = Mutex::new(Vec::new());
/// Most bytes of it: output beyond this is lost while the program holds the stream, as output
/// beyond the device's own buffer is.
const MOST_UNPRINTED: usize = 64 << 20;
/// Bytes that a piece takes beside its text.
const PIECE: usize = 64;
/// Changed under the lock.
static HAS_UNPRINTED: AtomicBool = AtomicBool::new(false);

fn unprinted() -> MutexGuard<'static, Vec<(Output, Vec<u8>)>> {
    UNPRINTED.lock()
}

impl Output {
    /// C's standard output.
    pub(super) fn standard() -> Output {
        // SAFETY: a variable of C's library, which programs set while nobody else uses it.
        Output(unsafe { stdout })
    }

    /// C's standard error output.
    pub(super) fn error() -> Output {
        // SAFETY: as above.
        Output(unsafe { stderr })
    }

    /// Waits until nobody else holds the stream.
    fn hold(self) -> Held {
        // SAFETY: the stream is C's.
        unsafe { flockfile(self.0) };
        Held(self)
    }

    fn try_hold(self) -> Option<Held> {
        // SAFETY: the stream is C's.
        (unsafe { ftrylockfile(self.0) } == 0).then(|| Held(self))
    }
}

impl Held {
    fn print(&self, bytes: &[u8]) {
        // SAFETY: the bytes are there, and the stream is C's.
        unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), self.0.0) };
    }

    /// Prints what could not be printed before.
    fn print_rest(&self, mut unprinted: MutexGuard<'_, Vec<(Output, Vec<u8>)>>) {
        let mine: Vec<_> = unprinted.extract_if(.., |(output, _)| *output == self.0).collect();
        HAS_UNPRINTED.store(!unprinted.is_empty(), Ordering::Release);
        drop(unprinted);
        for (_, bytes) in mine {
            self.print(&bytes);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: locked when this was made.
        unsafe { funlockfile(self.0.0) };
    }
}

/// Prints what kernels printed, through the program's own C stream: its order relative to the
/// program's own output stays as it is natively.
pub(super) fn print(output: Output, bytes: &[u8]) {
    let mut unprinted = unprinted();
    // A thread of the program may hold the stream while it waits for a page, which this one may
    // have to read: it must not wait in turn.
    let Some(held) = output.try_hold() else {
        let waiting: usize = unprinted.iter().map(|(_, bytes)| bytes.len() + PIECE).sum();
        if waiting + bytes.len() <= MOST_UNPRINTED {
            unprinted.push((output, bytes.to_vec()));
        }
        HAS_UNPRINTED.store(true, Ordering::Release);
        return;
    };
    held.print_rest(unprinted);
    held.print(bytes);
}

/// Prints the output that could not be printed when it arrived, on a thread that holds no lock.
#[inline]
pub(super) fn print_rest() {
    if HAS_UNPRINTED.load(Ordering::Acquire) {
        print_rest_now();
    }
}

#[cold]
fn print_rest_now() {
    loop {
        let Some(output) = unprinted().first().map(|(output, _)| *output) else { return };
        let held = output.hold();
        held.print_rest(unprinted());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    /// What waits is of one process: one test at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Even if another thread holds the stream meanwhile, and several print the rest: nothing is
    /// lost, and all of it is in order.
    #[test]
    fn output_stays_whole_and_in_order() {
        let _alone = ALONE.lock();
        const LINES: usize = 8_000;
        // SAFETY: a new file.
        let output = Output(unsafe { libc::tmpfile() });
        assert!(!output.0.is_null(), "there is a file for the test");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let until_done = |each: &dyn Fn()| {
                while !done.load(Ordering::Relaxed) {
                    each();
                    thread::yield_now();
                }
            };
            // The program, which prints something else for a while.
            scope.spawn(move || {
                until_done(&|| {
                    let _held = output.hold();
                    thread::sleep(Duration::from_micros(20));
                })
            });
            for _ in 0..2 {
                scope.spawn(move || until_done(&print_rest));
            }
            for line in 0..LINES {
                print(output, format!("{line}\n").as_bytes());
                if line % 8 == 0 {
                    thread::sleep(Duration::from_micros(5));
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        print_rest();
        let expected: String = (0..LINES).map(|line| format!("{line}\n")).collect();
        let mut found = vec![0; expected.len() + 1];
        // SAFETY: the stream is this test's, and the buffer has that much room.
        let count = unsafe {
            libc::rewind(output.0);
            libc::fread(found.as_mut_ptr().cast(), 1, found.len(), output.0)
        };
        found.truncate(count);
        assert!(found == expected.as_bytes(), "{count} bytes of {}", expected.len());
        // SAFETY: nobody uses it any more.
        unsafe { libc::fclose(output.0) };
    }

    #[test]
    fn what_cannot_be_printed_fills_no_memory() {
        let _alone = ALONE.lock();
        // SAFETY: a new file.
        let output = Output(unsafe { libc::tmpfile() });
        assert!(!output.0.is_null(), "there is a file for the test");
        let (held, hold) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let _held = output.hold();
                let _ = (held.send(()), gone.recv());
            });
            hold.recv().expect("the stream is held");
            let piece = vec![b'x'; 4 << 20];
            (0..40).for_each(|_| print(output, &piece));
            let waiting = |of: Output| {
                unprinted().iter().filter(|(to, _)| *to == of).map(|(_, bytes)| bytes.len()).sum()
            };
            let bytes: usize = waiting(output);
            assert!((32 << 20..=MOST_UNPRINTED).contains(&bytes), "{bytes} bytes wait");
            go.send(()).expect("somebody holds the stream");
        });
        unprinted().retain(|(to, _)| *to != output);
        // SAFETY: nobody uses it any more.
        unsafe { libc::fclose(output.0) };
    }
}
