//! A TCP proxy that cuts what goes through it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Stands between clients and a server until it is dropped.
pub(crate) struct Proxy {
    address: String,
    inner: Arc<Inner>,
}

struct Inner {
    target: String,
    live: Mutex<Vec<(u64, TcpStream, TcpStream)>>,
    /// Attempts of clients to connect, connections made so far, and cuts.
    attempts: AtomicU64,
    made: AtomicU64,
    cuts: AtomicU64,
    /// The most bytes that a connection carries, in one direction, before it is cut; the numbers
    /// are drawn below it. 0 for no end.
    budget: AtomicU64,
    /// New connections are closed at once.
    closed: AtomicBool,
    /// Nothing that comes for the proxy's sockets reaches them.
    silent: AtomicBool,
    listener: TcpListener,
    over: AtomicBool,
    random: AtomicU64,
}

impl Inner {
    /// A number that depends on how many were drawn before.
    fn draw(&self) -> u64 {
        let mut state = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ (state >> 31)
    }

    fn forget(&self, number: u64) {
        self.live.lock().retain(|(other, ..)| *other != number);
    }

    /// Carries bytes one way, until there are no more or the connection's time has come.
    fn carry(&self, number: u64, mut from: TcpStream, mut to: TcpStream, mut left: Option<u64>) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let most = left.map_or(buffer.len(), |left| buffer.len().min(left as usize));
            if most == 0 {
                self.cuts.fetch_add(1, Ordering::Relaxed);
                break;
            }
            let Ok(count @ 1..) = from.read(&mut buffer[..most]) else { break };
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
            left = left.map(|left| left - count as u64);
        }
        // Both ways end with one, as they do when the machine between two others goes.
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        self.forget(number);
    }

    fn accept(self: &Arc<Inner>, client: TcpStream) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        let Ok(server) = TcpStream::connect(&self.target) else { return };
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor can be had");
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let mut live = self.live.lock();
        if self.silent.load(Ordering::Relaxed) {
            drop_all(&client, true);
            drop_all(&server, true);
        }
        live.push((number, copy(&client), copy(&server)));
        drop(live);
        let budget = self.budget.load(Ordering::Relaxed);
        for (from, to) in [(copy(&client), copy(&server)), (server, client)] {
            let left = (budget > 0).then(|| {
                // Most are cut early: more happens there.
                let most = if self.draw().is_multiple_of(4) { budget } else { budget / 32 };
                1 + self.draw() % most
            });
            let inner = Arc::clone(self);
            std::thread::spawn(move || inner.carry(number, from, to, left));
        }
    }
}

impl Proxy {
    /// In front of a server.
    pub(crate) fn start(target: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it listens").to_string();
        let inner = Arc::new(Inner {
            target: target.to_owned(),
            live: Mutex::default(),
            attempts: AtomicU64::new(0),
            made: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            budget: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            listener: listener.try_clone().expect("a descriptor can be had"),
            over: AtomicBool::new(false),
            random: AtomicU64::new(1),
        });
        let accepting = Arc::clone(&inner);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.over.load(Ordering::Relaxed) {
                    return;
                }
                accepting.accept(client);
            }
        });
        Proxy { address, inner }
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// From now on, new connections are cut when they have carried fewer than this many bytes one
    /// way; 0 for no such end.
    pub(crate) fn cut_within(&self, bytes: u64) {
        self.inner.budget.store(bytes, Ordering::Relaxed);
    }

    /// Cuts connections: all, or one chosen by the number. How many.
    pub(crate) fn cut(&self, which: Option<u64>) -> usize {
        let live = self.inner.live.lock();
        let chosen = which.map(|which| which as usize % live.len().max(1));
        let mut cut = 0;
        for (index, (_, client, server)) in live.iter().enumerate() {
            if chosen.is_none_or(|chosen| chosen == index) {
                let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
                cut += 1;
            }
        }
        self.inner.cuts.fetch_add(cut as u64, Ordering::Relaxed);
        cut
    }

    /// Whether new connections are closed at once.
    pub(crate) fn close(&self, closed: bool) {
        self.inner.closed.store(closed, Ordering::Relaxed);
    }

    /// Whether the network is gone: nothing that is sent to the proxy arrives, so that nobody hears
    /// anything, not even that.
    pub(crate) fn silence(&self, silent: bool) {
        let live = self.inner.live.lock();
        self.inner.silent.store(silent, Ordering::Relaxed);
        drop_all(&self.inner.listener, silent);
        for (_, client, server) in live.iter() {
            drop_all(client, silent);
            drop_all(server, silent);
        }
    }

    /// How often clients have tried to connect, in vain or not.
    pub(crate) fn attempts(&self) -> u64 {
        self.inner.attempts.load(Ordering::Relaxed)
    }

    /// How many connections have been made, and how many cut.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.inner.made.load(Ordering::Relaxed), self.inner.cuts.load(Ordering::Relaxed))
    }
}

/// Has the system drop all packets for a socket before it looks at them, or no more.
fn drop_all(socket: &impl AsRawFd, silent: bool) {
    // One instruction: of each packet, take nothing.
    let mut nothing =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    let option = if silent { libc::SO_ATTACH_FILTER } else { libc::SO_DETACH_FILTER };
    let (value, length) =
        ((&raw const filter).cast(), size_of::<libc::sock_fprog>() as libc::socklen_t);
    // SAFETY: the program and its one instruction are valid for reads of their size; the system
    // copies them.
    let outcome =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, length) };
    // What was made while the network was whole has no filter to lose.
    assert!(outcome == 0 || !silent, "{}", std::io::Error::last_os_error());
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.silence(false);
        self.inner.over.store(true, Ordering::Relaxed);
        self.cut(None);
        // So that its thread looks.
        let _ = TcpStream::connect(&self.address);
    }
}
