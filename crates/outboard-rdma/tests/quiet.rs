//! The library takes over nothing of the process that loads it: no signal, no function of libc,
//! and it prints nothing.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;

use outboard_rdma::{Access, Channel, Device, Domain, Error, Queue, QueuePair, Region, Sizes};
use outboard_test_support::skip;

/// What is in this process's status under that name: `SigCgt`, the signals it handles.
fn status(name: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.to_owned()
}

/// The first bytes of functions that UCX replaces by jumps.
fn functions() -> Vec<[u8; 16]> {
    let addresses: [*const u8; 6] = [
        libc::mmap as *const u8,
        libc::munmap as *const u8,
        libc::shmat as *const u8,
        libc::brk as *const u8,
        libc::madvise as *const u8,
        libc::fork as *const u8,
    ];
    // SAFETY: code of libc's, which can be read and is longer than that.
    addresses.map(|address| unsafe { address.cast::<[u8; 16]>().read() }).to_vec()
}

fn use_all(name: &str) -> Result<(), Error> {
    let device = Device::open(name)?;
    let endpoint = device.endpoint(None)?;
    let domain = Domain::create(&device)?;
    let region = Region::create(&domain, 1 << 16, Access::Own)?;
    let channel = Channel::create(&device)?;
    let queue = Queue::create(&channel, 16)?;
    queue.arm()?;
    let sizes = Sizes { sends: 4, receives: 4 };
    QueuePair::create(endpoint, &domain, vec![region], Access::Own, [&queue, &queue], sizes)
        .map(drop)
}

#[test]
fn the_library_takes_no_signal_and_no_function_and_prints_nothing() {
    let before = (status("SigCgt"), functions());
    let said =
        File::from(rustix::fs::memfd_create("said", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    let outputs = [
        std::io::stdout().as_fd().try_clone_to_owned().unwrap(),
        std::io::stderr().as_fd().try_clone_to_owned().unwrap(),
    ];
    rustix::stdio::dup2_stdout(&said).unwrap();
    rustix::stdio::dup2_stderr(&said).unwrap();
    let installed = outboard_rdma::installed();
    let names = outboard_rdma::names();
    let used: Option<Result<(), Error>> =
        names.as_ref().ok().and_then(|names| names.first()).map(|name| use_all(name));
    rustix::stdio::dup2_stdout(&outputs[0]).unwrap();
    rustix::stdio::dup2_stderr(&outputs[1]).unwrap();
    let (mut text, mut said) = (String::new(), said);
    said.rewind().unwrap();
    said.read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
    assert_eq!((status("SigCgt"), functions()), before);
    if let Err(error) = installed {
        skip!("{error}");
    }
    match used {
        Some(used) => used.unwrap(),
        None => skip!("{}", names.err().unwrap_or(Error::NoDevice)),
    }
}
