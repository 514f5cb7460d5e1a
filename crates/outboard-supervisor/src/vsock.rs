//! Where virtual machines reach a server by vsock, and who comes from there.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use outboard_transport::{AddressError, DEFAULT_PORT, VsockAddress};

/// Where a server waits for clients in virtual machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// At the kernel's vsock.
    Kernel(VsockAddress),
    /// Where a hypervisor forwards what its virtual machine connects to.
    Forwarded {
        /// The hypervisor's own socket. That of a port has the port behind it.
        socket: PathBuf,
        /// The port.
        port: u32,
    },
}

/// A client in a virtual machine, as far as the system knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guest {
    /// The machine's number, which it cannot choose, and the client's port there.
    Numbered(VsockAddress),
    /// The process of its hypervisor.
    Of { hypervisor: u32 },
}

impl Guest {
    /// Its machine, for people.
    pub(super) fn machine(self) -> String {
        match self {
            Guest::Numbered(VsockAddress { cid, .. }) => format!("virtual machine {cid}"),
            Guest::Of { hypervisor } => format!("the virtual machine of process {hypervisor}"),
        }
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guest::Numbered(address) => address.fmt(f),
            Guest::Of { .. } => f.write_str(&self.machine()),
        }
    }
}

impl Place {
    /// Whether others than this machine's own programs get there.
    fn is_for_guests(&self) -> bool {
        !matches!(self, Place::Kernel(address) if address.is_local())
    }

    /// The socket to which a hypervisor connects.
    pub(super) fn forwarded_to(socket: &Path, port: u32) -> PathBuf {
        let mut path = OsString::from(socket);
        path.push(format!("_{port}"));
        path.into()
    }
}

/// Whether a server with these places is for others than this machine's own programs.
pub fn are_let_in(places: &[Place]) -> bool {
    places.iter().any(Place::is_for_guests)
}

/// `any[:PORT]`, `local[:PORT]`, `CID[:PORT]`, each with `vsock:` before it or not, or
/// `/PATH[:PORT]`.
impl FromStr for Place {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Place, AddressError> {
        if text.starts_with('/') {
            let (socket, port) = match text.rsplit_once(':') {
                Some((socket, port)) => (socket, port.parse().ok().filter(|port| *port != 0)),
                None => (text, Some(u32::from(DEFAULT_PORT))),
            };
            let port = port.ok_or_else(|| AddressError::VsockPort {
                address: text.to_owned(),
                port: text.rsplit(':').next().unwrap_or_default().to_owned(),
            })?;
            return Ok(Place::Forwarded { socket: socket.into(), port });
        }
        VsockAddress::parse(text)
            .or_else(|| VsockAddress::parse(&format!("vsock:{text}")))
            .unwrap_or_else(|| Err(AddressError::Vsock(text.to_owned())))
            .map(Place::Kernel)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Kernel(address) => address.fmt(f),
            Place::Forwarded { socket, port } => {
                Place::forwarded_to(socket, *port).display().fmt(f)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_numbers_names_and_sockets() {
        let kernel = |cid, port| Place::Kernel(VsockAddress { cid, port });
        let forwarded = |socket: &str, port| Place::Forwarded { socket: socket.into(), port };
        for (text, place, shown, for_guests) in [
            ("any", kernel(u32::MAX, 9470), "vsock:any:9470", true),
            ("vsock:any:80", kernel(u32::MAX, 80), "vsock:any:80", true),
            ("local", kernel(1, 9470), "vsock:local:9470", false),
            ("3:99999", kernel(3, 99_999), "vsock:3:99999", true),
            ("/run/vm1.sock", forwarded("/run/vm1.sock", 9470), "/run/vm1.sock_9470", true),
            ("/run/vm1.sock:80", forwarded("/run/vm1.sock", 80), "/run/vm1.sock_80", true),
        ] {
            assert_eq!(text.parse(), Ok(place.clone()), "{text}");
            assert_eq!(place.to_string(), shown);
            assert_eq!(are_let_in(&[kernel(1, 1), place]), for_guests, "{text}");
        }
        for text in ["", "x", "any:0", "any:x", "0", "vm1.sock", "/vm1.sock:0", "/vm1.sock:"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        assert!(!are_let_in(&[]));
    }
}
