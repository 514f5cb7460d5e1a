//! Servers that stop, and sessions that go on without theirs.

use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outboard_client::link::{ConnectError, handshake};
use outboard_control::messages::{self, ToSupervisor, ToWorker};
use outboard_transport::tcp::Tcp;
use outboard_transport::{Stream, Transport};
use outboard_wire::ContextId;
use outboard_wire::handshake::resume::Point;
use outboard_wire::handshake::{Purpose, RefusalCode, Welcome};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tempfile::TempDir;

use super::copies::upload;
use super::parts::*;
use super::proxy::Proxy;
use super::scenarios::{answer_to, is_lost, works};

macro_rules! scenarios {
    ($($name:ident)*) => {
        pub(crate) const ALL: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}

scenarios! {
    a_stopping_server_lets_sessions_finish_and_takes_no_new_ones
    a_second_signal_ends_sessions_at_once
    sessions_end_when_their_time_is_up
    a_stopping_server_without_sessions_ends_at_once
    sessions_go_on_when_their_server_is_killed
    who_only_has_the_user_of_the_server_takes_over_no_session
    a_session_without_a_server_ends_with_its_client
    a_session_waits_for_the_next_server_only_so_long
    a_worker_that_does_not_answer_holds_up_nobody_and_is_taken_over_later
    a_client_that_loses_its_connection_while_there_is_no_server_goes_on_with_the_next
    a_worker_that_turns_from_its_server_is_ended
    a_server_becomes_another_release_and_nobody_notices
    a_server_that_cannot_become_another_release_goes_on
}

/// A server whose sessions may go on for so many seconds when it stops.
fn serve_draining(seconds: u64) -> Part {
    Part::start(&["supervisor", "1", &seconds.to_string()])
}

/// Waits until the server refuses new sessions because it is stopping.
fn stopping(server: &Part) {
    wait_until("a refusal", || match connect(&server.first_line, vec![]) {
        Ok(_) => false,
        Err(ConnectError::Refused { refusal, .. }) => {
            assert_eq!(refusal.code, RefusalCode::Stopping, "{}", refusal.sentence);
            true
        }
        Err(error) => panic!("{error}"),
    });
}

fn a_stopping_server_lets_sessions_finish_and_takes_no_new_ones() {
    let mut server = serve_draining(600);
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    let (other, _) = connect(&server.first_line, vec![]).unwrap();
    works(&link);
    server.signal(libc::SIGTERM);
    stopping(&server);
    // Workers without a client go at once, those with one stay.
    wait_until("the warm worker's end", || server.children().len() == 2);
    works(&link);
    works(&other);
    // Lanes are judged by their key as ever.
    let lane = hello(Purpose::Lane { session: 1, key: 1 });
    assert_eq!(answer_to(&server.first_line, &lane.encode()).code, RefusalCode::NoSession);
    drop(link);
    wait_until("the worker's end", || !runs(worker));
    works(&other);
    assert!(server.child.try_wait().unwrap().is_none(), "it waits for the other session");
    drop(other);
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

fn a_second_signal_ends_sessions_at_once() {
    for (first, second) in [(libc::SIGTERM, libc::SIGTERM), (libc::SIGINT, libc::SIGINT)] {
        let mut server = serve_draining(600);
        let (link, worker) = connect(&server.first_line, vec![]).unwrap();
        server.signal(first);
        stopping(&server);
        works(&link);
        server.signal(second);
        let status = server.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{status}");
        wait_until("the worker's end", || !runs(worker));
        assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())));
    }
}

fn sessions_end_when_their_time_is_up() {
    let mut server = serve_draining(1);
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    // Who is served is told of the end, and tries no longer to go on.
    works(&link);
    let asked = Instant::now();
    server.signal(libc::SIGTERM);
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(asked.elapsed() >= Duration::from_secs(1), "{:?}", asked.elapsed());
    wait_until("the worker's end", || !runs(worker));
    assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())));
}

fn a_stopping_server_without_sessions_ends_at_once() {
    let mut server = serve_draining(600);
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    drop(link);
    wait_until("the worker's end", || !runs(worker));
    server.signal(libc::SIGTERM);
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

/// For how long its sessions wait, usually, for clients that are silent and for those that are
/// gone.
const GRACE: &str = "1000,1000";

/// A server that can be killed and started again at the same address.
struct Standing {
    server: Part,
    folder: TempDir,
    outlive: Option<&'static str>,
    grace: &'static str,
}

impl Standing {
    fn start(outlive: Option<&'static str>) -> Standing {
        Standing::start_keeping(outlive, GRACE)
    }

    /// One that keeps sessions without connection for so many milliseconds.
    fn start_keeping(outlive: Option<&'static str>, grace: &'static str) -> Standing {
        let folder = tempfile::tempdir().unwrap();
        let server = Standing::server(folder.path(), outlive, grace, "127.0.0.1:0");
        Standing { server, folder, outlive, grace }
    }

    fn server(folder: &std::path::Path, outlive: Option<&str>, grace: &str, address: &str) -> Part {
        Part::start_with(
            &["supervisor", "1"],
            &Standing::variables(folder, outlive, grace, address),
        )
    }

    fn variables<'a>(
        folder: &'a std::path::Path,
        outlive: Option<&'a str>,
        grace: &'a str,
        address: &'a str,
    ) -> Vec<(&'static str, &'a str)> {
        let mut env = vec![(RECORDS, folder.to_str().unwrap()), (LISTEN, address)];
        env.extend(outlive.map(|seconds| (OUTLIVE, seconds)));
        env.push(("OUTBOARD_TEST_GRACE", grace));
        env
    }

    /// How often it has become another program.
    fn upgrades(&self) -> u64 {
        let environment =
            std::fs::read(format!("/proc/{}/environ", self.server.child.id())).unwrap();
        let told = environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(b"OUTBOARD_TAKES_OVER="));
        let told = String::from_utf8(told.unwrap_or(b"0 0").to_vec()).unwrap();
        told.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn upgrade(&self) {
        let before = self.upgrades();
        self.server.signal(libc::SIGUSR2);
        wait_until("the upgrade", || self.upgrades() == before + 1);
    }

    fn address(&self) -> &str {
        &self.server.first_line
    }

    fn kill(&mut self) {
        self.server.signal(libc::SIGKILL);
        self.server.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.server =
            Standing::server(self.folder.path(), self.outlive, self.grace, self.address());
    }

    /// Files that are there for sessions.
    fn files(&self) -> usize {
        let folders = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        folders.map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().count()).sum()
    }
}

/// A session of which more is known than a link tells.
fn session(address: &str) -> (Arc<dyn Stream>, Welcome) {
    let stream = Tcp.connect(address, PATIENCE).unwrap();
    let hello = hello(Purpose::Session { devices: vec![] });
    let welcome = handshake(&*stream, address, &hello, Instant::now() + PATIENCE).unwrap();
    (stream, welcome)
}

/// Whether a session takes one more lane.
fn takes_a_lane(address: &str, session: &Welcome) -> bool {
    let stream = Tcp.connect(address, PATIENCE).unwrap();
    let lane = hello(Purpose::Lane { session: session.session, key: session.key });
    handshake(&*stream, address, &lane, Instant::now() + PATIENCE).is_ok()
}

fn sessions_go_on_when_their_server_is_killed() {
    let mut standing = Standing::start(None);
    wait_until("a warm worker", || standing.server.children().len() == 1);
    let (link, worker) = connect(standing.address(), vec![]).unwrap();
    let (_stream, welcome) = session(standing.address());
    works(&link);
    for _ in 0..2 {
        let own = [worker, process(&welcome)];
        wait_until("a warm worker", || {
            standing.server.children().iter().any(|child| !own.contains(child))
        });
        let warm: Vec<u32> =
            standing.server.children().into_iter().filter(|child| !own.contains(child)).collect();
        standing.kill();
        wait_until("the warm worker's end", || warm.iter().all(|worker| !runs(*worker)));
        works(&link);
        assert!(connect(standing.address(), vec![]).is_err(), "nobody is there");
        works(&link);

        standing.start_again();
        works(&link);
        assert!(takes_a_lane(standing.address(), &welcome));
        assert!(!takes_a_lane(
            standing.address(),
            &Welcome { key: welcome.key ^ 1, ..welcome.clone() }
        ));
        let (other, new) = connect(standing.address(), vec![]).unwrap();
        works(&other);
        drop(other);
        wait_until("the new worker's end", || !runs(new));
    }
    wait_until("two files for each session", || standing.files() == 4);
    // It can end them, too.
    standing.server.signal(libc::SIGTERM);
    assert_eq!(standing.server.child.wait().unwrap().code(), Some(0));
    wait_until("the workers' end", || !runs(worker) && !runs(process(&welcome)));
    assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())));
    assert_eq!(standing.files(), 0);
}

/// A worker that a client controls has the server's user, and may connect to any Unix socket of
/// this user's.
fn who_only_has_the_user_of_the_server_takes_over_no_session() {
    let mut standing = Standing::start(None);
    let (link, worker) = connect(standing.address(), vec![]).unwrap();
    let homes = std::fs::read_dir(standing.folder.path()).unwrap().flatten();
    let homes = homes.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten());
    let home =
        homes.map(|entry| entry.path()).find(|path| path.extension() == Some("sock".as_ref()));
    let home = SocketAddrUnix::new(home.unwrap()).unwrap();
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    // It stands first in line, and asks for the session as the next server would for a client.
    let attacker = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    rustix::net::connect(&attacker, &home).unwrap();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let point = Point { lane: 0, attempt: 1 << 40, received: 0 };
    let go_on = ToWorker::GoOn { secure: false, point };
    messages::send(attacker.as_fd(), &go_on, Some(theirs.as_fd())).unwrap();
    drop(theirs);
    standing.kill();
    let heard = messages::receive::<ToSupervisor>(attacker.as_fd());
    assert!(!matches!(heard, Ok(Some(_))), "{heard:?}");
    let mut said = Vec::new();
    let _ = (&ours).read_to_end(&mut said);
    assert!(said.is_empty(), "{said:?}");
    works(&link);
    standing.start_again();
    works(&link);
    assert!(runs(worker));
    // The same while the server becomes another release.
    let again = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    rustix::net::connect(&again, &home).unwrap();
    standing.upgrade();
    works(&link);
    upload(&link, 1 << 20, 256 << 10);
    let heard = messages::receive::<ToSupervisor>(again.as_fd());
    assert!(!matches!(heard, Ok(Some(_))), "{heard:?}");
}

fn a_session_without_a_server_ends_with_its_client() {
    let mut standing = Standing::start(None);
    let client = Part::start(&["client", standing.address()]);
    let (link, worker) = connect(standing.address(), vec![]).unwrap();
    let stuck: u32 = client.first_line.parse().unwrap();
    standing.kill();
    works(&link);
    assert!(runs(stuck));
    client.signal(libc::SIGKILL);
    drop(link);
    wait_until("the workers' end", || !runs(worker) && !runs(stuck));
    assert!(standing.files() > 0);
    // The next server finds that they are gone.
    standing.start_again();
    wait_until("nothing is left", || standing.files() == 0);
}

fn a_session_waits_for_the_next_server_only_so_long() {
    let mut standing = Standing::start(Some("1"));
    let (link, worker) = connect(standing.address(), vec![]).unwrap();
    standing.kill();
    works(&link);
    wait_until("the worker's end", || !runs(worker));
    assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())));
}

fn a_worker_that_does_not_answer_holds_up_nobody_and_is_taken_over_later() {
    let mut standing = Standing::start(None);
    let (link, worker) = connect(standing.address(), vec![]).unwrap();
    let (_stream, welcome) = session(standing.address());
    let stopped = process(&welcome);
    kill(stopped, libc::SIGSTOP);
    standing.kill();
    standing.start_again();
    works(&link);
    let (other, _) = connect(standing.address(), vec![]).unwrap();
    works(&other);
    assert!(runs(worker) && !takes_a_lane(standing.address(), &welcome));
    kill(stopped, libc::SIGCONT);
    wait_until("the session is back", || takes_a_lane(standing.address(), &welcome));
}

/// Both are gone at once, as when a machine's network is started anew; and once more while the
/// server becomes another release.
fn a_client_that_loses_its_connection_while_there_is_no_server_goes_on_with_the_next() {
    let mut standing = Standing::start_keeping(None, "600000,600000");
    let proxy = Proxy::start(standing.address());
    let (link, worker) = connect(proxy.address(), vec![]).unwrap();
    upload(&link, 1 << 20, 256 << 10);
    standing.kill();
    cut_all(&proxy);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| works(&link));
        let before = proxy.attempts();
        wait_until("attempts to go on, in vain", || proxy.attempts() >= before + 3);
        assert!(!waits.is_finished());
        standing.start_again();
        waits.join().unwrap();
    });
    upload(&link, 3 << 20, 256 << 10);
    for _ in 0..3 {
        let before = standing.upgrades();
        standing.server.signal(libc::SIGUSR2);
        cut_all(&proxy);
        works(&link);
        upload(&link, 1 << 20, 256 << 10);
        wait_until("the upgrade", || standing.upgrades() == before + 1);
    }
    works(&link);
    assert!(runs(worker));
    // The goodbye goes through the proxy, which ends with this process.
    drop(link);
    wait_until("the worker's end", || !runs(worker));
}

fn cut_all(proxy: &Proxy) {
    wait_until("connections end", || proxy.cut(None) == 0);
}

fn a_worker_that_turns_from_its_server_is_ended() {
    let standing = Standing::start(None);
    let (link, worker) = connect(standing.address(), vec![]).unwrap();
    let (other, _) = connect(standing.address(), vec![]).unwrap();
    works(&link);
    link.call(TURN_AWAY, ContextId::NONE, |_| ()).unwrap();
    // It would wait for the next server, out of reach of this one.
    wait_until("the worker's end", || !runs(worker));
    assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())));
    works(&other);
    wait_until("the files of one session", || standing.files() == 2);
}

fn a_server_becomes_another_release_and_nobody_notices() {
    const UPGRADES: u64 = 4;
    let mut standing = Standing::start(None);
    let (link, worker) = connect(standing.address(), vec![]).unwrap();
    let (_stream, welcome) = session(standing.address());
    let done = AtomicBool::new(false);
    let served = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut served = 0;
                    while !done.load(Ordering::Relaxed) {
                        let (link, _) = connect(standing.address(), vec![]).unwrap();
                        works(&link);
                        served += 1;
                    }
                    served
                })
            })
            .collect();
        for upgrade in 1..=UPGRADES {
            standing.upgrade();
            works(&link);
            assert!(takes_a_lane(standing.address(), &welcome), "after upgrade {upgrade}");
            let (other, _) = connect(standing.address(), vec![]).unwrap();
            works(&other);
        }
        done.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum::<u64>()
    });
    assert!(served > 0 && standing.upgrades() == UPGRADES, "{served}");
    assert!(standing.server.child.try_wait().unwrap().is_none(), "it is the same process");
    // Whoever has ended meanwhile is waited for, so that nothing is left of it.
    drop(link);
    wait_until("the worker's end", || !std::path::Path::new(&format!("/proc/{worker}")).exists());
    wait_until("the files of one session", || standing.files() == 2);
    standing.server.signal(libc::SIGTERM);
    assert_eq!(standing.server.child.wait().unwrap().code(), Some(0));
    wait_until("the worker's end", || !runs(process(&welcome)));
}

fn a_server_that_cannot_become_another_release_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = Standing::variables(folder.path(), None, GRACE, "127.0.0.1:0");
    env.push((PROGRAM, "/bin/false"));
    let server = Part::start_with(&["supervisor", "1"], &env);
    let mut standing = Standing { server, folder, outlive: None, grace: GRACE };
    let (link, _) = connect(standing.address(), vec![]).unwrap();
    for _ in 0..3 {
        standing.server.signal(libc::SIGUSR2);
        works(&link);
        let (other, _) = connect(standing.address(), vec![]).unwrap();
        works(&other);
    }
    assert_eq!(standing.upgrades(), 0);
    assert!(standing.server.child.try_wait().unwrap().is_none());
}
