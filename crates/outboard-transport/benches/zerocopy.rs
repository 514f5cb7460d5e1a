//! `cargo bench -p outboard-transport --bench zerocopy [-- NAMESPACE ADDRESS]`: what a byte costs
//! that TCP sends from where it lies (`MSG_ZEROCOPY`), beside one that it copies, in turns.
//!
//! One thread sends and another one receives, over loopback; or the receiver listens in a network
//! namespace of `ip netns`, at an address there. For each turn: GB/s, seconds of processor time for
//! each GB on either side, and how many of the sends the kernel has copied all the same.

#![allow(clippy::print_stdout, missing_docs)]

use std::fs::File;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Bytes of one send, as of a lane's chunk, and of a turn.
const CHUNKS: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
const TURN: usize = 1 << 30;
const TURNS: usize = 3;

/// `SO_EE_ORIGIN_ZEROCOPY` and `SO_EE_CODE_ZEROCOPY_COPIED` of linux/errqueue.h.
const ORIGIN: u8 = 5;
const COPIED: u8 = 1;

/// Processor time of this thread.
fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sends that the kernel has said to be done, and those of them that it has copied.
#[derive(Default)]
struct Done {
    all: u32,
    copied: u32,
}

impl Done {
    /// Takes what the kernel has said by now.
    fn hear(&mut self, stream: &TcpStream) {
        loop {
            let mut room = [0_u64; 16];
            // SAFETY: msghdr consists of integers and pointers, for which zeros are values.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_control = room.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&room);
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: the message has no buffers, and `room` is as large as it says.
            if unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, flags) } < 0 {
                return;
            }
            // SAFETY: the kernel has written whole headers of control messages into `room`.
            let error = unsafe {
                let head = libc::CMSG_FIRSTHDR(&message);
                assert!(!head.is_null(), "a notification says what it is about");
                libc::CMSG_DATA(head).cast::<libc::sock_extended_err>().read_unaligned()
            };
            assert_eq!(error.ee_origin, ORIGIN);
            let count = error.ee_data.wrapping_sub(error.ee_info) + 1;
            self.all += count;
            if error.ee_code & COPIED != 0 {
                self.copied += count;
            }
        }
    }
}

/// Allows sends without copies.
fn set_zerocopy(stream: &TcpStream) {
    let on: libc::c_int = 1;
    let length = size_of_val(&on) as libc::socklen_t;
    // SAFETY: the option is an integer.
    let set = unsafe {
        let (fd, on) = (stream.as_raw_fd(), (&raw const on).cast());
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, on, length)
    };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

/// The processor time that sending took, how many sends there were, and how many were copied.
fn send(stream: &TcpStream, chunk: usize, zerocopy: bool) -> (Duration, u32, u32) {
    if zerocopy {
        set_zerocopy(stream);
    }
    let flags = libc::MSG_NOSIGNAL | if zerocopy { libc::MSG_ZEROCOPY } else { 0 };
    let (bytes, before) = (vec![7_u8; chunk], used());
    let (mut left, mut sends, mut done) = (TURN, 0, Done::default());
    while left > 0 {
        let length = chunk.min(left);
        // SAFETY: the bytes live until the kernel has said that it does not need them.
        let sent = unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), length, flags) };
        match usize::try_from(sent) {
            Ok(sent) => (left, sends) = (left - sent, sends + 1),
            // Too many notifications wait.
            Err(_) => assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOBUFS)),
        }
        if zerocopy {
            done.hear(stream);
        }
    }
    while zerocopy && done.all < sends {
        std::thread::yield_now();
        done.hear(stream);
    }
    (used() - before, sends, done.copied)
}

/// The processor time that receiving took.
fn receive(mut stream: TcpStream) -> Duration {
    let (mut bytes, before) = (vec![0; 1 << 20], used());
    let mut left = TURN;
    while left > 0 {
        let room = bytes.len().min(left);
        left -= stream.read(&mut bytes[..room]).expect("it comes");
    }
    used() - before
}

/// Listens where the arguments say.
fn listen() -> TcpListener {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    let [namespace, address] = &arguments[..] else {
        return TcpListener::bind("127.0.0.1:0").expect("a port");
    };
    let namespace = File::open(format!("/run/netns/{namespace}")).expect("the namespace is there");
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).expect("this is root");
            TcpListener::bind((address.as_str(), 0)).expect("the address is there")
        });
        there.join().expect("it does not panic")
    })
}

fn main() {
    let listener = listen();
    for chunk in (0..TURNS).flat_map(|_| CHUNKS) {
        for zerocopy in [false, true] {
            let here = TcpStream::connect(listener.local_addr().expect("it listens"));
            let (here, there) = (here.expect("it listens"), listener.accept().expect("it came").0);
            let begun = Instant::now();
            let (sent, received) = std::thread::scope(|scope| {
                let receiver = scope.spawn(|| receive(there));
                (send(&here, chunk, zerocopy), receiver.join().expect("it does not panic"))
            });
            let ((sent, sends, copied), gigabytes) = (sent, TURN as f64 / 1e9);
            println!(
                "{:4} KiB  {:8}  {:5.2} GB/s  {:.3} s/GB sending  {:.3} s/GB receiving  {copied} of {sends} copied",
                chunk >> 10,
                if zerocopy { "zerocopy" } else { "copy" },
                gigabytes / begun.elapsed().as_secs_f64(),
                sent.as_secs_f64() / gigabytes,
                received.as_secs_f64() / gigabytes,
            );
        }
    }
}
