//! Files: what the device is asked for when their bytes move.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use outboard_abi::CUresult;

use super::program::Program;
use super::*;
use crate::backend::Result;
use crate::calls::files::{Way, close, open, transfer};
use crate::host_call::HostCall;

const BYTES: usize = 4096;

/// A file of a program, and device memory.
struct Opened {
    program: Program,
    file: u64,
    memory: u64,
}

impl Opened {
    /// The server is on another machine, where nobody has this file.
    fn new(writable: bool) -> Opened {
        let opened = Opened::on_this_machine(writable);
        opened.program.fail_next("file_give", CUresult::CUDA_ERROR_NOT_SUPPORTED);
        opened
    }

    fn on_this_machine(writable: bool) -> Opened {
        let program = Program::current();
        // SAFETY: a name, and the descriptor that the call makes.
        let own = unsafe { File::from_raw_fd(libc::memfd_create(c"file".as_ptr(), 0)) };
        own.set_len(BYTES as u64).unwrap();
        let mut file = 0;
        // SAFETY: a place for the file.
        unsafe { open(program.process, own.as_raw_fd(), writable, &raw mut file) }.unwrap();
        Opened { program, file, memory: program.memory(2 * BYTES) }
    }

    fn transfer(&self, way: Way, address: u64, bytes: usize, offset: i64) -> Result<isize> {
        let mut moved = 0;
        let (process, memory) = (self.program.process, (address, bytes));
        // SAFETY: a place for the result; the memory is the test's own, or a device's.
        unsafe { transfer(process, way, self.file, memory, offset, &raw mut moved) }?;
        Ok(moved)
    }

    /// What the device is asked for by a transfer of the whole file.
    fn asked_by(&self, way: Way) -> Vec<&'static str> {
        self.program.methods_of(|| {
            assert_eq!(self.transfer(way, self.memory, BYTES, 0), Ok(BYTES as isize));
        })
    }
}

#[test]
fn a_transfer_has_a_stream_of_its_own_that_the_next_one_takes_over() {
    let opened = Opened::new(true);
    let copied = ["copy_to_device", "stream_synchronize"];
    let first = ["file_give", "stream_create"];
    assert_eq!(opened.asked_by(Way::Read), [&first, &copied[..]].concat());
    assert_eq!(opened.asked_by(Way::Read), copied);
    let after_default = ["event_create", "event_record", "stream_wait_event", "event_destroy"];
    assert_eq!(opened.asked_by(Way::Write), [&after_default[..], &["copy_to_host"]].concat());
}

#[test]
fn a_server_on_this_machine_gets_the_descriptor_once() {
    let opened = Opened::on_this_machine(true);
    opened.program.recorder.answer_with("file_read", (BYTES as u64, 0_u32));
    opened.program.recorder.answer_with("file_write", (BYTES as u64, 0_u32));
    assert_eq!(opened.asked_by(Way::Read), ["file_give", "file_read"]);
    assert_eq!(opened.asked_by(Way::Read), ["file_read"]);
    // After what the program has queued in the default stream.
    assert_eq!(opened.asked_by(Way::Write).last(), Some(&"file_write"));
    // A server that cannot read it is not asked again.
    opened.program.fail_next("file_read", CUresult::CUDA_ERROR_NOT_SUPPORTED);
    let asked = opened.asked_by(Way::Read);
    assert_eq!(asked[..2], ["file_read", "file_close"], "{asked:?}");
    assert_eq!(opened.asked_by(Way::Read), ["copy_to_device", "stream_synchronize"]);
}

#[test]
fn no_server_moves_more_than_it_was_asked_for() {
    let opened = Opened::on_this_machine(true);
    opened.program.recorder.answer_with("file_read", (u64::MAX, 0_u32));
    assert_eq!(opened.transfer(Way::Read, opened.memory, 100, 0), Ok(100));
}

#[test]
fn a_function_that_a_stream_calls_may_transfer_and_waits_for_no_stream_of_the_program() {
    unsafe extern "C" fn in_stream(opened: *mut core::ffi::c_void) {
        // SAFETY: what the test gives.
        let opened = unsafe { &*opened.cast::<Opened>() };
        let refused = call!(opened.program, cuCtxSynchronize);
        assert_eq!(refused, Err(CUresult::CUDA_ERROR_NOT_PERMITTED));
        let first = ["file_give", "stream_create", "copy_to_host"];
        assert_eq!(opened.asked_by(Way::Write), first);
        assert_eq!(opened.asked_by(Way::Read), ["copy_to_device", "stream_synchronize"]);
        let refused = call!(opened.program, cuCtxSynchronize);
        assert_eq!(refused, Err(CUresult::CUDA_ERROR_NOT_PERMITTED), "still");
    }
    let opened = Opened::new(true);
    let data = (&raw const opened).cast_mut().cast();
    // SAFETY: the function takes what is given.
    unsafe { HostCall::plain(Some(in_stream), data) }.unwrap().run(CUresult::CUDA_SUCCESS);
    call!(opened.program, cuCtxSynchronize).unwrap();
}

#[test]
fn host_memory_is_the_files_directly() {
    let opened = Opened::new(true);
    let mut own = [7_u8; BYTES];
    let address = own.as_mut_ptr() as u64;
    let asked = opened.program.methods_of(|| {
        assert_eq!(opened.transfer(Way::Write, address, 100, 50), Ok(100));
        assert_eq!(opened.transfer(Way::Read, address, BYTES, 0), Ok(BYTES as isize));
    });
    assert!(asked.is_empty(), "{asked:?}");
    assert!(
        own.iter().enumerate().all(|(at, byte)| *byte == 7 * u8::from((50..150).contains(&at)))
    );
    let nowhere = opened.transfer(Way::Read, 64, 100, 0);
    assert_eq!(nowhere, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn mistakes_are_errors_of_the_file_or_of_the_device() {
    let opened = Opened::new(false);
    let read = |memory, bytes, offset| opened.transfer(Way::Read, memory, bytes, offset);
    assert_eq!(read(opened.memory, 100, -1), Ok(-libc::EINVAL as isize));
    assert_eq!(read(opened.memory, 100, BYTES as i64), Ok(0));
    let written = opened.transfer(Way::Write, opened.memory, 100, 0);
    assert_eq!(written, Ok(-libc::EBADF as isize), "the program may only read");
    for (memory, bytes) in [(opened.memory, 2 * BYTES + 1), (u64::MAX, 2), (1 << 20, usize::MAX)] {
        assert_eq!(read(memory, bytes, 0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
    opened.program.fail_next("copy_to_device", CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(read(opened.memory, 100, 0), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(read(opened.memory, 100, 0), Ok(100));
    close(opened.program.process, opened.file).unwrap();
    assert_eq!(close(opened.program.process, opened.file), Err(libc::EBADF));
    assert_eq!(read(opened.memory, 100, 0), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
}
