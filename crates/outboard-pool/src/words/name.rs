//! Names: text that can go into a log, a command line and a URL as it is.

use super::Malformed;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most characters of a name.
const LONGEST: usize = 253;

/// The most characters of a purpose.
const LONGEST_PURPOSE: usize = 128;

/// The most characters of a node's name.
const LONGEST_NODE: usize = 64;

/// What names may contain besides ASCII letters and digits.
const SIGNS: &str = "._-:/@+";

fn check(what: &str, text: &str) -> Result<(), Malformed> {
    if text.is_empty() || text.len() > LONGEST {
        return Err(Malformed(format!("{what} needs 1 to {LONGEST} characters")));
    }
    if !text.chars().all(|c| c.is_ascii_alphanumeric() || SIGNS.contains(c)) {
        return Err(Malformed(format!("{what} may have letters, digits and {SIGNS} only")));
    }
    Ok(())
}

macro_rules! names {
    ($($(#[$docs:meta])* $name:ident: $what:literal, $check:ident;)*) => {$(
        $(#[$docs])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Malformed;

            fn try_from(text: String) -> Result<Self, Malformed> {
                $check($what, &text)?;
                Ok($name(text))
            }
        }

        impl std::str::FromStr for $name {
            type Err = Malformed;

            fn from_str(text: &str) -> Result<Self, Malformed> {
                text.to_owned().try_into()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

names! {
    /// By which name the pool knows a server.
    ServerName: "the name of a server", check;
    /// A device's UUID as NVML says it, such as `GPU-8a1f…`.
    DeviceUuid: "the UUID of a device", check;
    /// Who asks for a lease and has it.
    OwnerName: "the name of an owner", check;
    /// Several owners with one quota.
    GroupName: "the name of a group", check;
    /// What a scheduler calls a node of its cluster.
    NodeName: "the name of a node", check_node;
    /// The key or the value of a label.
    LabelText: "a label's key or value", check;
    /// What a lease is for, as whoever asks for it calls that: a job or a claim of a scheduler.
    Purpose: "a purpose", check_purpose;
    /// The SHA-256 hash of a client's public key, as 64 lower-case hexadecimal digits.
    Thumbprint: "a key's thumbprint", check_thumbprint;
}

/// A purpose is also a part of a path.
fn check_purpose(what: &str, text: &str) -> Result<(), Malformed> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    if (1..=LONGEST_PURPOSE).contains(&text.len()) && text.chars().all(is_allowed) {
        return Ok(());
    }
    Err(Malformed(format!("{what} has 1 to {LONGEST_PURPOSE} letters, digits and ._:-")))
}

/// A node's name is a part of an owner's, before an `@`.
fn check_node(what: &str, text: &str) -> Result<(), Malformed> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=LONGEST_NODE).contains(&text.len()) && text.chars().all(is_allowed) {
        return Ok(());
    }
    Err(Malformed(format!("{what} has 1 to {LONGEST_NODE} letters, digits and ._-")))
}

fn check_thumbprint(what: &str, text: &str) -> Result<(), Malformed> {
    let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    if text.len() == 64 && text.bytes().all(is_digit) {
        return Ok(());
    }
    Err(Malformed(format!("{what} has 64 hexadecimal digits, in lower case")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_control_no_terminal() {
        for wrong in ["", "a b", "a\u{1b}[2J", "é", &"a".repeat(LONGEST + 1)] {
            assert!(wrong.parse::<ServerName>().is_err(), "{wrong:?}");
            let json = serde_json::to_string(wrong).expect("text is JSON");
            assert!(serde_json::from_str::<ServerName>(&json).is_err(), "{wrong:?}");
        }
        assert_eq!(
            "gpu1.example:4242".parse::<ServerName>().map(String::from),
            Ok("gpu1.example:4242".into())
        );
    }

    #[test]
    fn purposes_are_parts_of_paths() {
        assert!("slurm.cluster.12_4:0-1".parse::<Purpose>().is_ok());
        for wrong in ["", "a/b", "a?b", "a b", "%2e", &"a".repeat(LONGEST_PURPOSE + 1)] {
            assert!(wrong.parse::<Purpose>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn thumbprints_have_one_spelling() {
        assert!("ab".repeat(32).parse::<Thumbprint>().is_ok());
        for wrong in ["AB".repeat(32), "ab".repeat(31), "xy".repeat(32)] {
            assert!(wrong.parse::<Thumbprint>().is_err(), "{wrong}");
        }
    }
}
