//! Settings that a single server has of its own: `OUTBOARD_SERVERS`, an object of JSON with an
//! object for each server or range of servers.
//!
//! ```json
//! {"gpu1": {"token-file": "/etc/outboard/token"}, "gpu[2-4]:9471": {"transport": "tcp", "tls": "off"}}
//! ```

use std::path::PathBuf;

use outboard_transport::Endpoint;
use serde_json::{Map, Value};

use crate::link::security::{Security, Tls};
use crate::link::{Choice, Config};
use crate::target::{Target, Targets};

/// The variable by which `outboard run` has the library say which server is lost, and why a rank
/// has no device.
pub const SAY_LOST: &str = "OUTBOARD_SAY_LOST";

/// Its value if the program has one server.
pub const ALONE: &str = "alone";

/// The variable with these settings.
pub const VARIABLE: &str = "OUTBOARD_SERVERS";

/// A setting by which a server is recognised or a client is known, and which way it is applied.
type Credential = (&'static str, fn(&mut Security, &str) -> Result<(), String>);

/// All of those.
const CREDENTIALS: [Credential; 9] = [
    ("tls", |security, text| {
        security.tls = match text {
            "auto" => Tls::Auto,
            "on" => Tls::On,
            "off" => Tls::Off,
            other => return Err(format!("`tls` is `{other}`; it can be auto, on or off")),
        };
        Ok(())
    }),
    ("tls-fingerprint", |security, text| {
        security.fingerprint = Some(text.to_owned());
        Ok(())
    }),
    ("tls-ca", |security, text| {
        security.authorities = Some(PathBuf::from(text));
        Ok(())
    }),
    ("tls-cert", |security, text| {
        security.certificate = Some(PathBuf::from(text));
        Ok(())
    }),
    ("tls-key", |security, text| {
        security.key = Some(PathBuf::from(text));
        Ok(())
    }),
    ("token-file", |security, text| {
        security.token_file = Some(PathBuf::from(text));
        Ok(())
    }),
    ("lease", |security, text| {
        security.lease = Some(PathBuf::from(text));
        Ok(())
    }),
    ("lease-key", |security, text| {
        security.lease_key = Some(PathBuf::from(text));
        Ok(())
    }),
    ("pool-name", |security, text| {
        security.pool_name = Some(text.to_owned());
        Ok(())
    }),
];

const TRANSPORT: &str = "transport";
const RECONNECT: &str = "reconnect";
const IVSHMEM: &str = "ivshmem";

/// The names of the settings that a server can have of its own.
pub fn keys() -> impl Iterator<Item = &'static str> {
    [TRANSPORT, RECONNECT, IVSHMEM].into_iter().chain(CREDENTIALS.iter().map(|(name, _)| *name))
}

/// Whether a setting is about who server and client are.
pub fn is_credential(key: &str) -> bool {
    CREDENTIALS.iter().any(|(name, _)| *name == key)
}

impl Config {
    /// The settings for one server, as the environment says. If the server has credentials of its
    /// own, it is shown no others.
    pub fn of_server(server: &Target) -> Config {
        // Others than text are a mistake in it, too.
        let text = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
        Config::with_own(server, text.map(|text| text.to_string_lossy().into_owned()).as_deref())
    }

    /// The same, if the variable [`VARIABLE`] had this text.
    pub fn with_own(server: &Target, text: Option<&str>) -> Config {
        let address = &server.address;
        let mut config = Config::from_env();
        config.said_when_lost = std::env::var_os(SAY_LOST).map(|value| match value == ALONE {
            true => format!("the session at {address} is lost, so that all later calls fail"),
            false => format!(
                "the server {address} is lost, and its devices with it; other servers' go on"
            ),
        });
        if let Some(text) = text
            && let Err(mistake) = apply(text, address, &mut config)
        {
            config.security.mistake = Some(mistake);
        }
        if let Some(invitation) = &server.invitation {
            config.security = Security {
                fingerprint: Some(invitation.fingerprint.to_string()),
                token: Some(invitation.token.clone()),
                of_server: Some(address.to_string()),
                ..Security::default()
            };
        }
        config
    }
}

/// Applies the settings of a server, if it has any.
fn apply(text: &str, address: &Endpoint, config: &mut Config) -> Result<(), String> {
    let all: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for (list, settings) in &all {
        let targets: Targets = list.parse().map_err(|error| format!("{error}"))?;
        if targets.servers().iter().all(|target| target.address != *address) {
            continue;
        }
        let object = settings.as_object().ok_or_else(|| format!("`{list}` is no object"))?;
        if object.keys().any(|key| is_credential(key)) {
            config.security =
                Security { of_server: Some(address.to_string()), ..Security::default() };
        }
        for (key, value) in object {
            let text = value.as_str().ok_or_else(|| format!("`{key}` of `{list}` is no text"))?;
            if let Some((_, apply)) = CREDENTIALS.iter().find(|(name, _)| name == key) {
                apply(&mut config.security, text)?;
                continue;
            }
            match (key.as_str(), text) {
                (TRANSPORT, name) => {
                    config.transport = Choice::named(name).ok_or_else(|| {
                        format!("`{TRANSPORT}` is `{name}`; it can be auto, ivshmem, rdma, shm, tcp or vsock")
                    })?;
                }
                (IVSHMEM, path) => config.ivshmem = Some(PathBuf::from(path)),
                (RECONNECT, text) => {
                    let seconds = text.parse().map_err(|_| {
                        format!("`{RECONNECT}` is `{text}`; it is a number of seconds")
                    })?;
                    config.reconnect_for(seconds);
                }
                (other, _) => return Err(format!("there is no setting `{other}` of a server")),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of a server with general ones that are known.
    fn of(text: &str, address: &str) -> Result<Config, String> {
        let general = Security { token: Some("general".to_owned()), ..Security::default() };
        let mut config = Config { security: general, transport: Choice::Shm, ..Config::default() };
        apply(text, &address.parse().expect("an address"), &mut config).map(|()| config)
    }

    #[test]
    fn a_server_has_its_own_credentials_or_the_general_ones() {
        let text = r#"{"gpu1": {"token-file": "/t1", "tls": "on"}, "gpu[2-3]:80": {"transport": "tcp"},
            "unix:/s": {"tls-fingerprint": "sha256:1", "tls-ca": "/a", "tls-cert": "/c", "tls-key": "/k"}}"#;
        let first = of(text, "gpu1:9470").unwrap();
        assert_eq!(first.security.token_file, Some("/t1".into()));
        assert_eq!((first.security.tls, first.transport), (Tls::On, Choice::Shm));
        assert_eq!(first.security.token, None, "another server's token is not shown to it");
        let second = of(text, "gpu3:80").unwrap();
        assert_eq!((second.transport, second.security.of_server), (Choice::Tcp, None));
        assert_eq!(second.security.token.as_deref(), Some("general"));
        let leased = r#"{"gpu1": {"lease": "/l", "lease-key": "/k", "pool-name": "a"}}"#;
        let leased = of(leased, "gpu1").unwrap().security;
        assert_eq!((leased.lease, leased.lease_key), (Some("/l".into()), Some("/k".into())));
        assert_eq!((leased.pool_name.as_deref(), leased.token), (Some("a"), None));
        let rash = of(r#"{"gpu1": {"reconnect": "0"}}"#, "gpu1").unwrap();
        assert!(rash.reconnect.is_zero() && rash.security.of_server.is_none());
        let near = r#"{"vsock:host": {"transport": "ivshmem", "ivshmem": "/dev/shm/vm1"}}"#;
        let near = of(near, "vsock:host:9470").unwrap();
        assert_eq!((near.transport, near.ivshmem), (Choice::Ivshmem, Some("/dev/shm/vm1".into())));
        assert!(near.security.of_server.is_none(), "it is no credential");
        let third = of(text, "unix:/s").unwrap().security;
        assert_eq!(third.fingerprint.as_deref(), Some("sha256:1"));
        assert_eq!(
            (third.authorities, third.certificate, third.key),
            (Some("/a".into()), Some("/c".into()), Some("/k".into()))
        );
        for other in ["gpu2", "gpu4:80", "gpu1:80"] {
            let other = of(text, other).unwrap();
            assert_eq!(other.security.token.as_deref(), Some("general"));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, mistake) in [
            ("", "EOF"),
            ("[]", "expected a map"),
            (r#"{"gpu1": 1}"#, "`gpu1` is no object"),
            (r#"{"gpu[1": {}}"#, "not a range"),
            (r#"{"gpu1": {"token": "x"}}"#, "no setting `token`"),
            (r#"{"gpu1": {"tls": 1}}"#, "`tls` of `gpu1` is no text"),
            (r#"{"gpu1": {"tls": "maybe"}}"#, "auto, on or off"),
            (r#"{"gpu1": {"transport": "udp"}}"#, "auto, ivshmem, rdma, shm, tcp or vsock"),
            (r#"{"gpu1": {"reconnect": "-1"}}"#, "a number of seconds"),
        ] {
            let told = of(text, "gpu1").expect_err(text);
            assert!(told.contains(mistake), "{text}: {told}");
        }
    }
}
