//! Addresses of vsock, which leads from a virtual machine to its host and back.

use std::fmt;

use super::{AddressError, DEFAULT_PORT};

/// A context identifier, which names a machine, and a port there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VsockAddress {
    /// The machine's: 2 is the host, 1 the machine that says so.
    pub cid: u32,
    /// The port. [`DEFAULT_PORT`] if none was given.
    pub port: u32,
}

/// What the address of a machine's vsock begins with.
const VSOCK: &str = "vsock:";

/// The machine itself.
const LOCAL: u32 = libc::VMADDR_CID_LOCAL;
/// The host, as its virtual machines name it.
const HOST: u32 = libc::VMADDR_CID_HOST;
/// Whichever machine asks: to listen there.
const ANY: u32 = libc::VMADDR_CID_ANY;
/// Identifiers that have names.
const NAMES: [(u32, &str); 3] = [(LOCAL, "local"), (HOST, "host"), (ANY, "any")];

impl VsockAddress {
    /// An address as people write it: `vsock:CID[:PORT]`, or `host`, `local` or `any` in place of
    /// CID. `None` if it is an address of another kind.
    ///
    /// # Errors
    /// [`AddressError::Vsock`], or [`AddressError::VsockPort`].
    pub fn parse(text: &str) -> Option<Result<VsockAddress, AddressError>> {
        text.strip_prefix(VSOCK).map(|place| {
            let (machine, port) = place
                .split_once(':')
                .map_or((place, None), |(machine, port)| (machine, Some(port)));
            Ok(VsockAddress {
                cid: cid(machine).ok_or_else(|| AddressError::Vsock(text.to_owned()))?,
                port: port.map_or(Ok(u32::from(DEFAULT_PORT)), |port| {
                    number(port).filter(|port| *port != 0).ok_or_else(|| AddressError::VsockPort {
                        address: text.to_owned(),
                        port: port.to_owned(),
                    })
                })?,
            })
        })
    }

    /// Whether a client can connect there: `any` is a place to listen at.
    pub fn is_one_machine(self) -> bool {
        self.cid != ANY
    }

    /// Whether only the machine itself is there.
    pub fn is_local(self) -> bool {
        self.cid == LOCAL
    }

    /// Whether the host is there, or whoever says so.
    pub(crate) fn is_host(self) -> bool {
        self.cid == HOST
    }
}

impl fmt::Display for VsockAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(cid, _)| *cid == self.cid) {
            Some((_, name)) => write!(f, "{VSOCK}{name}:{}", self.port),
            None => write!(f, "{VSOCK}{}:{}", self.cid, self.port),
        }
    }
}

/// A machine's identifier. 0 was the hypervisor's once, and nothing listens there.
fn cid(text: &str) -> Option<u32> {
    let named = NAMES.iter().find(|(_, name)| *name == text).map(|(cid, _)| *cid);
    named.or_else(|| number(text).filter(|cid| *cid != libc::VMADDR_CID_HYPERVISOR))
}

/// A number in digits and nothing else. The greatest one means "any" to the kernel.
fn number(text: &str) -> Option<u32> {
    let is_written_so = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_written_so && *number != u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Endpoint;
    use super::*;

    fn parsed(text: &str) -> Result<VsockAddress, AddressError> {
        VsockAddress::parse(text).unwrap()
    }

    #[test]
    fn machines_have_numbers_and_names() {
        let default = u32::from(DEFAULT_PORT);
        for (text, cid, port, shown) in [
            ("vsock:host", 2, default, "vsock:host:9470"),
            ("vsock:2:80", 2, 80, "vsock:host:80"),
            ("vsock:local:100000", 1, 100_000, "vsock:local:100000"),
            ("vsock:any", u32::MAX, default, "vsock:any:9470"),
            ("vsock:17", 17, default, "vsock:17:9470"),
            (
                "vsock:4294967294:4294967294",
                u32::MAX - 1,
                u32::MAX - 1,
                "vsock:4294967294:4294967294",
            ),
        ] {
            let address = parsed(text).unwrap();
            assert_eq!((address.cid, address.port), (cid, port), "{text}");
            assert_eq!(address.to_string(), shown);
        }
        for text in ["gpu1", "unix:/vsock:1", "ssh://vsock:1", "vsock", "Vsock:1"] {
            assert_eq!(VsockAddress::parse(text), None, "{text}");
        }
    }

    #[test]
    fn others_are_refused_with_a_hint() {
        for text in [
            "vsock:",
            "vsock::1",
            "vsock:0",
            "vsock:4294967295",
            "vsock:gpu1",
            "vsock:-1",
            "vsock:+1",
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains("vsock:host[:PORT]"), "{text}: {error}");
        }
        for text in [
            "vsock:2:",
            "vsock:2:0",
            "vsock:2:x",
            "vsock:2:1:2",
            "vsock:2:+1",
            "vsock:2:4294967295",
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains("is not a port of vsock"), "{text}: {error}");
        }
    }

    #[test]
    fn nobody_connects_to_any_machine() {
        let error = "vsock:any:80".parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.contains("`vsock:any:80` is where a server listens"), "{error}");
    }

    proptest! {
        #[test]
        fn addresses_come_back_as_they_were(cid in 1..u32::MAX, port in 1..u32::MAX) {
            let address = VsockAddress { cid, port };
            prop_assert_eq!(parsed(&address.to_string()), Ok(address));
            prop_assert_eq!(parsed(&format!("vsock:{cid}:{port}")), Ok(address));
            prop_assert_eq!(address.to_string().parse(), Ok(Endpoint::Vsock(address)));
        }

        /// Whatever is written, there is an answer, and what is understood is written back.
        #[test]
        fn any_text_is_answered(text in "vsock:[0-9a-z:+ -]{0,14}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
            }
        }
    }
}
