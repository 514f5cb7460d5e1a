//! Collectives: what goes to the server, and when.

use core::ffi::{CStr, c_void};

use outboard_abi::CUstream;

use super::program::Program;
use super::*;
use crate::collectives::result::{INVALID_ARGUMENT, INVALID_USAGE, SUCCESS};

const FLOAT: u32 = 7;
const SUM: u32 = 0;
const COUNT: usize = 64;

/// A rank of a communicator of one.
struct Rank {
    program: Program,
    comm: *mut c_void,
    stream: CUstream,
    memory: u64,
}

impl Rank {
    fn new() -> Rank {
        let program = Program::current();
        let (mut comm, stream) = (core::ptr::null_mut(), program.stream());
        let devices = [0];
        let made = call!(program, ncclCommInitAll, &raw mut comm, 1, devices.as_ptr());
        assert_eq!(made, SUCCESS);
        Rank { program, comm, stream, memory: program.memory(COUNT * 4) }
    }

    fn reduce(&self, count: usize, datatype: u32) -> u32 {
        let memory = self.memory as *mut c_void;
        let (comm, stream) = (self.comm, self.stream);
        call!(self.program, ncclAllReduce, memory, memory, count, datatype, SUM, comm, stream)
    }

    /// How many groups the server was given as calls, and how many were posted.
    fn groups(&self) -> (usize, usize) {
        let calls = self.program.recorder.calls();
        let count = |method| calls.iter().filter(|call| call.method == method).count();
        (count("collectives_begin"), count("collectives_post"))
    }

    fn last_error(&self) -> String {
        let text = call!(self.program, ncclGetLastError, self.comm);
        // SAFETY: a string that is kept.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

#[test]
fn what_was_done_before_is_posted() {
    let rank = Rank::new();
    assert_eq!(rank.groups(), (1, 0));
    assert_eq!(rank.reduce(COUNT, FLOAT), SUCCESS);
    assert_eq!(rank.groups(), (2, 0));
    for posted in 1..=3 {
        assert_eq!(rank.reduce(COUNT, FLOAT), SUCCESS);
        assert_eq!(rank.groups(), (2, posted));
    }
    assert_eq!(rank.reduce(COUNT / 2, FLOAT), SUCCESS);
    assert_eq!(rank.groups(), (3, 3), "another count is another shape");
}

#[test]
fn a_group_is_one_message_and_a_shape_of_its_own() {
    let rank = Rank::new();
    assert_eq!(rank.reduce(COUNT, FLOAT), SUCCESS);
    let both = || {
        assert_eq!(call!(rank.program, ncclGroupStart), SUCCESS);
        assert_eq!(call!(rank.program, ncclGroupStart), SUCCESS);
        let before = rank.groups();
        assert_eq!([rank.reduce(COUNT, FLOAT), rank.reduce(COUNT, FLOAT)], [SUCCESS; 2]);
        assert_eq!(call!(rank.program, ncclGroupEnd), SUCCESS);
        assert_eq!(rank.groups(), before, "the outermost end counts");
        assert_eq!(call!(rank.program, ncclGroupEnd), SUCCESS);
    };
    both();
    assert_eq!(rank.groups(), (3, 0));
    both();
    assert_eq!(rank.groups(), (3, 1));
}

#[test]
fn a_group_with_a_mistake_makes_no_call() {
    let rank = Rank::new();
    assert_eq!(call!(rank.program, ncclGroupEnd), INVALID_USAGE);
    assert_eq!(call!(rank.program, ncclGroupStart), SUCCESS);
    assert_eq!(rank.reduce(COUNT, FLOAT), SUCCESS);
    assert_eq!(rank.reduce(COUNT, 99), INVALID_ARGUMENT);
    assert_eq!(rank.reduce(COUNT, FLOAT), SUCCESS);
    assert_eq!(call!(rank.program, ncclGroupEnd), INVALID_ARGUMENT);
    assert_eq!(rank.last_error(), "ncclGroupEnd: 99 is no ncclDataType_t");
    assert_eq!(rank.groups(), (1, 0));
    assert_eq!(rank.reduce(COUNT, FLOAT), SUCCESS, "the next one is a group of its own");
}

#[test]
fn a_communicator_ends_with_its_context() {
    let rank = Rank::new();
    call!(rank.program, cuDevicePrimaryCtxReset_v2, 0).expect("it is active");
    assert_eq!(rank.reduce(COUNT, FLOAT), INVALID_ARGUMENT);
    assert!(rank.last_error().contains("its device was reset"), "{}", rank.last_error());
}

#[test]
fn what_fails_in_the_server_fails_here() {
    let rank = Rank::new();
    let lost = outboard_abi::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;
    rank.program.recorder.fail("collectives_lost", 1, lost);
    let mut state = 0;
    let asked = call!(rank.program, ncclCommGetAsyncError, rank.comm, &raw mut state);
    assert_eq!((asked, state), (SUCCESS, crate::collectives::result::REMOTE_ERROR));
    assert_eq!(rank.reduce(COUNT, FLOAT), crate::collectives::result::REMOTE_ERROR);
    assert_eq!(rank.groups(), (1, 0), "it stays so");
}
