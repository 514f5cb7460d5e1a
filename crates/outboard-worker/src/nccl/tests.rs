use std::ffi::c_int;
use std::fmt::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use outboard_control::messages::{self, Interface, ToSupervisor};
use outboard_wire::{Encode, Writer};
use parking_lot::Mutex;

use super::*;

/// A library that asks for the network as NCCL does.
const SOURCE: &str = r#"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}
int made(void) { return socket(AF_INET, SOCK_STREAM, 0); }
int others(void) { return socket(AF_UNIX, SOCK_DGRAM, 0); }
int bound(int fd, int port) {
    struct sockaddr_in address = at(port);
    return bind(fd, (struct sockaddr *)&address, sizeof address) ? -errno : 0;
}
int listened(int fd, int backlog) { return listen(fd, backlog) ? -errno : 0; }
int connected(int fd, int port) {
    struct sockaddr_in address = at(port);
    return connect(fd, (struct sockaddr *)&address, sizeof address) ? -errno : 0;
}
int interfaces(char *name, unsigned *address, unsigned *mask) {
    struct ifaddrs *all, *one;
    int count = 0;
    if (getifaddrs(&all)) return -errno;
    for (one = all; one; one = one->ifa_next, count++) {
        strcpy(name, one->ifa_name);
        *address = ntohl(((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr);
        *mask = ntohl(((struct sockaddr_in *)one->ifa_netmask)->sin_addr.s_addr);
    }
    freeifaddrs(all);
    return count;
}
"#;

/// The library, linked so.
fn library(folder: &Path, name: &str, link: &str) -> PathBuf {
    let (source, library) = (folder.join("asks.c"), folder.join(name));
    std::fs::write(&source, SOURCE).unwrap();
    let arguments = ["-shared", "-fPIC", "-O1", link, "-o"];
    let built = Command::new("cc").args(arguments).arg(&library).arg(&source).status().unwrap();
    assert!(built.success());
    library
}

/// Answers one request, and says what it was.
fn answer(registry: &Registry, supervisor: &OwnedFd) -> String {
    let (message, descriptor) = messages::receive(supervisor.as_fd()).unwrap().unwrap();
    let number = |number: i32| number.to_le_bytes().to_vec();
    let mut said = String::new();
    let (request, answer) = match message {
        ToSupervisor::Socket { request, v6: false } => {
            said.push_str("socket");
            let made = TcpListener::bind("127.0.0.1:0").unwrap();
            (request, Some((Vec::new(), Some(made.into()))))
        }
        ToSupervisor::Bind { request, address } => {
            write!(said, "bind {address}").unwrap();
            assert!(descriptor.is_some());
            (request, Some((number(libc::EACCES), None)))
        }
        ToSupervisor::Listen { request, backlog } => {
            write!(said, "listen {backlog}").unwrap();
            assert!(descriptor.is_some());
            (request, Some((number(libc::EADDRINUSE), None)))
        }
        ToSupervisor::Connect { request, address } => {
            write!(said, "connect {address}").unwrap();
            let stream = TcpStream::from(descriptor.unwrap());
            let flags = rustix::fs::fcntl_getfl(&stream).unwrap();
            assert!(flags.contains(rustix::fs::OFlags::NONBLOCK), "the supervisor would wait");
            (request, Some((number(libc::ECONNREFUSED), None)))
        }
        ToSupervisor::Interface { request } => {
            said.push_str("interface");
            let (name, address) = ("eth7".to_owned(), "10.1.2.3".to_owned());
            let mut writer = Writer::new();
            Interface { name, flags: 1, address, prefix: 20, scope: 0 }.encode(&mut writer);
            (request, Some((writer.into_vec(), None)))
        }
        other => panic!("{other:?}"),
    };
    registry.answered(request, answer);
    said
}

/// A process has one session, and one way to its supervisor.
fn session() -> &'static (OwnedFd, Registry) {
    static SESSION: OnceLock<(OwnedFd, Registry)> = OnceLock::new();
    SESSION.get_or_init(|| {
        let (supervisor, ours) = messages::pair().unwrap();
        (supervisor, Registry::new(Arc::new(ours), false))
    })
}

/// Calls the library while a supervisor answers.
fn asked<T>(call: impl FnOnce() -> T) -> (T, String) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let (supervisor, registry) = session();
    std::thread::scope(|scope| {
        let said = scope.spawn(|| answer(registry, supervisor));
        (call(), said.join().unwrap())
    })
}

fn goes_to_the_supervisor(library: &Path) {
    // SAFETY: the library above, whose functions have these types.
    unsafe {
        let loaded = libloading::Library::new(library).unwrap();
        let given = asked(|| give_sockets(library, &session().1));
        assert_eq!(given, (Ok(()), "interface".to_owned()));
        type Numbers = unsafe extern "C" fn(c_int, c_int) -> c_int;
        let made = loaded.get::<unsafe extern "C" fn() -> c_int>(b"made\0").unwrap();
        let others = loaded.get::<unsafe extern "C" fn() -> c_int>(b"others\0").unwrap();
        let (bound, connected) =
            (loaded.get::<Numbers>(b"bound\0").unwrap(), loaded.get::<Numbers>(b"connected\0"));
        let (socket, said) = asked(|| made());
        assert!(socket >= 0 && said == "socket", "{said}");
        let outcome = asked(|| bound(socket, 0));
        assert_eq!(outcome, (-libc::EACCES, "bind 127.0.0.1:0".to_owned()));
        let listened = loaded.get::<Numbers>(b"listened\0").unwrap();
        let outcome = asked(|| listened(socket, 16));
        assert_eq!(outcome, (-libc::EADDRINUSE, "listen 16".to_owned()));
        let connected = connected.unwrap();
        let outcome = asked(|| connected(socket, 4871));
        assert_eq!(outcome, (-libc::ECONNREFUSED, "connect 127.0.0.1:4871".to_owned()));
        let flags = libc::fcntl(socket, libc::F_GETFL);
        assert_eq!(flags & libc::O_NONBLOCK, 0, "the socket waits as before");
        libc::close(socket);
        // Others are the system's: nobody is asked.
        let unix = others();
        assert!(unix >= 0);
        libc::close(unix);
        type List = unsafe extern "C" fn(*mut u8, *mut u32, *mut u32) -> c_int;
        let interfaces = loaded.get::<List>(b"interfaces\0").unwrap();
        let (mut name, mut address, mut mask) = ([0; 16], 0, 0);
        let outcome = asked(|| interfaces(name.as_mut_ptr(), &raw mut address, &raw mut mask));
        assert_eq!(outcome, (1, "interface".to_owned()));
        assert_eq!((&name[..5], address, mask), (&b"eth7\0"[..], 0x0a01_0203, 0xffff_f000));
        std::mem::forget(loaded);
    }
}

#[test]
fn what_a_library_asks_of_the_network_goes_to_the_supervisor() {
    // One whose entries are found when they are first used, and one whose are sealed at once.
    let folder = tempfile::tempdir().unwrap();
    goes_to_the_supervisor(&library(folder.path(), "lazy.so", "-Wl,-z,lazy"));
    goes_to_the_supervisor(&library(folder.path(), "sealed.so", "-Wl,-z,relro,-z,now"));
}

#[test]
fn a_library_that_is_not_there_or_asks_for_nothing_is_named() {
    let nowhere = asked(|| give_sockets(Path::new("/no/libnccl.so.2"), &session().1));
    let nowhere = nowhere.0.unwrap_err();
    assert!(nowhere.contains("/no/libnccl.so.2") && nowhere.contains("not loaded"), "{nowhere}");
}

#[test]
fn a_server_that_has_no_sockets_is_said_to_have_none() {
    let (supervisor, ours) = messages::pair().unwrap();
    let registry = Registry::new(Arc::new(ours), false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| match messages::receive(supervisor.as_fd()).unwrap().unwrap().0 {
            ToSupervisor::Interface { request } => registry.answered(request, None),
            other => panic!("{other:?}"),
        });
        give_sockets(Path::new("/no/libnccl.so.2"), &registry).unwrap_err()
    });
    assert!(said.contains("--peers none"), "{said}");
}
