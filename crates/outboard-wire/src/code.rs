//! Stable codes of what can go wrong for a user. Each has a page in `docs/errors`, which
//! `outboard explain CODE` prints.
//!
//! A code belongs to a situation and what to do about it, not to a place in the source: several
//! errors may share one. The hundreds say whose it is: 01 reaching a server, 02 what a server
//! answers, 03 starting a server and its driver, 04 who one is, 05 limits and sharing, 06 sessions,
//! 07 the command and its installation, 08 operation, 09 observation, 10 pools. `CONTRIBUTING.md`
//! says how to add one.

use core::fmt;

/// Calls a macro with every code: its text, its name in the source and its title, in order. For
/// what must be there once for each.
#[macro_export]
macro_rules! for_each_code {
    ($callback:ident) => {
        $callback! {
            // 01: reaching a server
            OB0101 NothingListens "nothing listens at the server's address";
            OB0102 NoAnswer "the server's address does not answer";
            OB0103 Unreachable "the server cannot be reached";
            OB0104 NoSocket "the server's Unix socket is not there";
            OB0105 SocketDenied "this user may not connect to the server's Unix socket";
            OB0106 NotOutboard "something else answers at the server's address";
            OB0107 BadAddress "the server's address or list of devices is not valid";
            OB0108 NoTransport "the requested transport is not available";
            OB0109 NoSharedMemory "no memory can be shared with the server";
            OB0110 ClientResources "the client's process lacks threads or descriptors";
            OB0111 UnknownHost "the server's name has no address";
            OB0112 SshFailed "ssh does not lead to the server";

            // 02: what a server answers
            OB0201 ClientTooOld "the client is too old for the server";
            OB0202 ServerTooOld "the server is too old for the client";
            OB0203 BadHello "the server did not understand the handshake, or it took too long";
            OB0204 NoSession "the server does not know the session";
            OB0205 NoDevice "the server does not have the device, or none at all";
            OB0206 Busy "the server is at its limit";
            OB0207 WorkerFailed "the server's worker did not start";
            OB0208 Stopping "the server is stopping";
            OB0209 NotAllowed "the server does not allow this to the client";
            OB0210 Refused "the server refused for a reason that this release does not know";
            OB0211 BadSnapshot "the server's description of its devices cannot be read";
            OB0212 NoSuchDevice "the server has no device of this index: now OB0205";
            OB0213 NoWindow "the server cannot be one of several";

            // 03: starting a server and its driver
            OB0301 NoGpu "there is no NVIDIA GPU to offer";
            OB0302 CannotListen "the server cannot listen at its address";
            OB0303 ServerStart "the server cannot start";
            OB0304 DriverUnusable "the driver library cannot be used";
            OB0305 SandboxIncomplete "the server cannot confine its workers as requested";
            OB0306 ImageCacheUnusable "the server cannot keep images";
            OB0307 WorkerUser "workers cannot run as the named user";
            OB0308 CgroupUnusable "the server cannot give workers the requested control groups";
            OB0309 NoNccl "there is no NCCL where packages put it";

            // 04: who one is
            OB0401 NotAuthenticated "the server does not accept the client's credentials";
            OB0402 TokenNotAccepted "the server does not accept the token";
            OB0403 ServerNotTrusted "the server has not proved that it is the expected one";
            OB0404 NothingToTrust "the client has nothing by which to recognise the server";
            OB0405 NotEncrypted "one side encrypts and the other does not";
            OB0406 BadCredentials "the client's token, key or certificate cannot be read";
            OB0407 OpenToAll "the server would be open to everybody";
            OB0408 LeaseNeeded "the server wants to see a lease of its pool";
            OB0409 LeaseNotAccepted "the server does not accept the lease";

            // 05: limits and sharing
            OB0501 OverLimit "the owner has reached a limit";
            OB0502 InQueue "the program would have to wait in the queue";

            // 06: sessions
            OB0601 ConnectionLost "the connection to the server is lost";
            OB0602 SessionOver "the session has ended and cannot go on";
            OB0603 LeaseOver "the lease has ended";

            // 07: the command and its installation
            OB0701 NotInstalled "a part of Outboard is not installed";
            OB0702 CannotStartProgram "the program cannot be started";
            OB0703 BadConfiguration "the configuration has mistakes";
            OB0704 FileUnusable "a file or folder cannot be read or written";
            OB0705 NoSuchCode "there is no such error code";
            OB0706 BadUsage "the command line cannot be understood";
            OB0707 NotMeasured "nothing was measured";
            OB0708 NoSuchContext "there is no context of this name";
            OB0709 NoLibrary "the server gives the client no library that fits it";
            OB0710 LibraryNotTrusted "the server's client library is not signed by a trusted key";

            // 08: operation
            OB0801 NotUpgraded "the upgrade failed, and the server continues as it is";
            OB0802 UpgradeLost "the server's new release does not serve";

            // 09: observation
            OB0901 NoAdmin "no server's administration socket was found";
            OB0902 AdminDenied "this user may not administer the server";
            OB0903 NoSuchSession "there is no such session";
            OB0904 AdminFailed "the server's administration socket gave an unexpected answer";
            OB0905 MetricsPublic "other machines could read the server's metrics";
            OB0906 MetricsUnusable "the server cannot offer its metrics";

            // 10: pools
            OB1001 BrokerAway "the broker of the pool cannot be reached";
            OB1002 BrokerDeclined "the broker declines";
            OB1003 NotAvailable "the pool does not give what was asked for";
            OB1004 BrokerNotTrusted "the command and the broker do not recognise each other";
            OB1005 BrokerInUse "another broker uses the same folder";
            OB1006 StoreUnusable "what the brokers keep in etcd cannot be used";
        }
    };
}

macro_rules! define {
    ($($text:ident $name:ident $title:literal;)*) => {
        /// A stable code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The code as people see it, such as `OB0101`.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Code::$name => stringify!($text),)*
                }
            }

            /// Its name in the source.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Code::$name => stringify!($name),)*
                }
            }

            /// What it stands for, as part of a sentence.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Code::$name => $title,)*
                }
            }
        }
    };
}

for_each_code!(define);

impl Code {
    /// The code of this text, however its letters are written; `OB` may be left out.
    pub fn parse(text: &str) -> Option<Code> {
        let upper = text.trim().to_ascii_uppercase();
        let digits = upper.strip_prefix("OB").unwrap_or(&upper);
        Code::ALL.iter().copied().find(|code| code.text()[2..] == *digits)
    }

    /// The code at the end of a sentence: `… [OB0101]`.
    pub fn at_end_of(sentence: &str) -> Option<Code> {
        let inside = sentence.trim_end().strip_suffix(']')?;
        let (_, code) = inside.rsplit_once('[')?;
        Code::ALL.iter().copied().find(|known| known.text() == code)
    }

    /// The sentence with this code at its end, unless it ends with one already.
    pub fn end(self, sentence: &str) -> String {
        match Code::at_end_of(sentence) {
            Some(_) => sentence.to_owned(),
            None => format!("{sentence} [{self}]"),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_each_is_there_once() {
        for pair in Code::ALL.windows(2) {
            assert!(pair[0].text() < pair[1].text(), "{} stands before {}", pair[0], pair[1]);
        }
        for code in Code::ALL {
            let digits = code.text().strip_prefix("OB").unwrap_or_default();
            assert!(
                digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit()),
                "{code}"
            );
            assert!(!code.title().is_empty() && !code.title().ends_with('.'), "{code}");
        }
    }

    #[test]
    fn codes_are_found_as_people_write_them() {
        for text in ["OB0101", "ob0101", "0101", " OB0101 "] {
            assert_eq!(Code::parse(text), Some(Code::NothingListens), "{text}");
        }
        for text in ["", "OB", "101", "OB9999", "OB01010", "ÖB0101", "é"] {
            assert_eq!(Code::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_sentence_has_one_code() {
        let once = Code::Busy.end("try again later");
        assert_eq!(once, "try again later [OB0206]");
        assert_eq!(Code::OverLimit.end(&once), once);
        assert_eq!(Code::at_end_of(&once), Some(Code::Busy));
        for text in ["", "]", "[]", "x [OB9999]", "[OB0206] first"] {
            assert_eq!(Code::at_end_of(text), None, "{text}");
        }
    }
}
