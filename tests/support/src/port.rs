//! Ports of this machine for programs that are told where to listen.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};

/// A TCP port of the loopback interface that the kernel gives to nobody who asks for any port.
///
/// A socket is bound to it, and does not listen. A program that sets `SO_REUSEADDR`, as servers do,
/// can listen at the port, again and again; until one does, connections are refused.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    _socket: OwnedFd,
}

impl ReservedPort {
    /// Reserves one.
    ///
    /// # Panics
    /// If the kernel has none.
    pub fn any() -> ReservedPort {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        sockopt::set_socket_reuseaddr(&socket, true).expect("a socket of TCP has this option");
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("there are ports");
        let address = getsockname(&socket).expect("it is bound");
        let address = SocketAddrV4::try_from(address).expect("it has the family it was made with");
        ReservedPort { number: address.port(), _socket: socket }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn who_knows_the_number_can_listen_and_nobody_else_gets_it() {
        let reserved = ReservedPort::any();
        let address = (Ipv4Addr::LOCALHOST, reserved.number());
        assert!(TcpStream::connect(address).is_err(), "nobody listens");
        for _ in 0..2 {
            let listener = TcpListener::bind(address).expect("it is free");
            TcpStream::connect(address).expect("somebody listens");
            drop(listener);
        }
        let any = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports");
        let others: Vec<TcpListener> = (0..500).map(|_| any()).collect();
        for other in &others {
            let other = other.local_addr().expect("it is bound");
            assert_ne!(other.port(), reserved.number());
        }
    }
}
