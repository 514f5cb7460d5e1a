use std::net::{TcpListener, UdpSocket};

use rustix::net::listen;

use super::*;

fn sockets(allowed: bool, reach: Reach) -> Sockets {
    let config = Config { allowed, interface: None };
    Sockets::new(&config, &dial::Config { reach, addresses: Vec::new() }, "127.0.0.1:1")
}

fn ready(socket: OwnedFd) -> OwnedFd {
    rustix::io::ioctl_fionbio(&socket, true).unwrap();
    socket
}

fn room(connections: usize) -> Semaphore {
    Semaphore::new(connections)
}

fn name(socket: &OwnedFd) -> SocketAddr {
    getsockname(socket).unwrap().try_into().unwrap()
}

#[test]
fn where_workers_make_no_collectives_there_are_no_sockets() {
    for sockets in [sockets(false, Reach::Private), sockets(true, Reach::Nowhere)] {
        assert_eq!(sockets.interface().unwrap_err(), Errno::ACCESS);
        assert_eq!(sockets.make(false).unwrap_err(), Errno::ACCESS);
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(sockets.bind(own.as_fd(), "127.0.0.1:0").unwrap_err(), Errno::ACCESS);
    }
}

#[test]
fn a_socket_has_this_servers_address_whatever_is_done_with_it() {
    let sockets = sockets(true, Reach::Private);
    let socket = sockets.make(false).unwrap();
    assert_eq!(name(&socket), "127.0.0.1:0".parse().unwrap());
    // One that nobody has bound, as a worker could do by itself.
    listen(&socket, 1).unwrap();
    let bound = name(&socket);
    assert!(bound.ip().is_loopback() && bound.port() >= sockets.lowest, "{bound}");
    assert_eq!(sockets.make(true).unwrap_err(), Errno::AFNOSUPPORT);
}

#[test]
fn a_socket_is_bound_to_a_free_port_of_this_servers_address_and_to_nothing_else() {
    let sockets = sockets(true, Reach::Private);
    let socket = sockets.make(false).unwrap();
    for other in ["127.0.0.1:22", "127.0.0.1:40000", "0.0.0.0:0", "127.0.0.2:0", "[::1]:0"] {
        assert_eq!(sockets.bind(socket.as_fd(), other).unwrap_err(), Errno::ACCESS, "{other}");
    }
    assert_eq!(sockets.bind(socket.as_fd(), "nonsense").unwrap_err(), Errno::INVAL);
    sockets.bind(socket.as_fd(), "127.0.0.1:0").unwrap();
    let bound = name(&socket);
    assert!(bound.port() >= sockets.lowest, "{bound}");
    // A second time it is bound already.
    sockets.bind(socket.as_fd(), "127.0.0.1:0").unwrap();
    assert_eq!(name(&socket), bound);
}

#[test]
fn a_socket_listens_if_it_has_this_servers_address_and_else_not() {
    let sockets = sockets(true, Reach::Private);
    let socket = sockets.make(false).unwrap();
    sockets.bind(socket.as_fd(), "127.0.0.1:0").unwrap();
    sockets.listen(1, socket.as_fd(), 16).unwrap();
    std::net::TcpStream::connect(name(&socket)).unwrap();
    let lost = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    assert_eq!(sockets.listen(1, lost.unwrap().as_fd(), 16).unwrap_err(), Errno::ACCESS);
}

#[test]
fn what_is_no_tcp_socket_is_refused() {
    let sockets = sockets(true, Reach::Private);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(sockets.bind(udp.as_fd(), "127.0.0.1:0").unwrap_err(), Errno::ACCESS);
    let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(sockets.bind(unix.as_fd(), "127.0.0.1:0").unwrap_err(), Errno::ACCESS);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(sockets.bind(file.as_fd(), "127.0.0.1:0").is_err());
}

#[tokio::test]
async fn a_socket_is_connected_where_peers_are_and_nowhere_else() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let near = sockets(true, Reach::Networks(vec!["127.0.0.0/8".parse().unwrap()]));
    let socket = ready(near.make(false).unwrap());
    let outcome = near.connect(socket.try_clone().unwrap(), &address, &room(1)).await;
    assert!(matches!(outcome, Ok(()) | Err(Errno::INPROGRESS)), "{outcome:?}");
    let (_taken, from) = listener.accept().unwrap();
    assert_eq!(from, name(&socket));

    let fresh = || ready(near.make(false).unwrap());
    let outcome = async |to: &str| near.connect(fresh(), to, &room(1)).await;
    // Services, this server's own among them, and machines that are not of a private network.
    for other in ["127.0.0.1:22", "127.0.0.1:4870", "127.0.0.1:1023", "8.8.8.8:40000"] {
        assert_eq!(outcome(other).await, Err(Errno::ACCESS), "{other}");
    }
    assert_eq!(outcome("nonsense").await, Err(Errno::INVAL));
    // Nobody is there: NCCL tries again.
    drop(listener);
    assert!(matches!(outcome(&address).await, Err(Errno::CONNREFUSED | Errno::INPROGRESS)));
    let far = sockets(true, Reach::Networks(vec!["10.9.0.0/16".parse().unwrap()]));
    assert_eq!(far.connect(fresh(), &address, &room(1)).await, Err(Errno::ACCESS));
    // One that would wait.
    let waits = near.make(false).unwrap();
    assert_eq!(near.connect(waits, &address, &room(1)).await, Err(Errno::INVAL));
    // One that has no room.
    assert_eq!(near.connect(fresh(), &address, &room(0)).await, Err(Errno::CONNREFUSED));
}

/// A server that listens on this machine only, with the default of `--peers`.
#[tokio::test]
async fn a_socket_is_connected_to_those_of_the_same_servers_workers_while_their_sessions_last() {
    let near = sockets(true, Reach::Private);
    let connect =
        async |to: &str| near.connect(ready(near.make(false).unwrap()), to, &room(1)).await;
    let of_another_program = TcpListener::bind("127.0.0.1:0").unwrap();
    let of_another_program = of_another_program.local_addr().unwrap().to_string();
    assert_eq!(connect(&of_another_program).await, Err(Errno::ACCESS));
    let socket = near.make(false).unwrap();
    near.bind(socket.as_fd(), "127.0.0.1:0").unwrap();
    let address = name(&socket).to_string();
    assert_eq!(connect(&address).await, Err(Errno::ACCESS), "it does not listen");
    near.listen(7, socket.as_fd(), 16).unwrap();
    let outcome = connect(&address).await;
    assert!(matches!(outcome, Ok(()) | Err(Errno::INPROGRESS)), "{outcome:?}");
    let elsewhere = address.replace("127.0.0.1", "127.0.0.2");
    assert_eq!(connect(&elsewhere).await, Err(Errno::ACCESS));
    near.forget(7);
    assert_eq!(connect(&address).await, Err(Errno::ACCESS));
}
