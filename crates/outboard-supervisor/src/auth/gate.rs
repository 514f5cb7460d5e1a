//! Checks whether a client may have a session.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use outboard_transport::tls::{Fingerprint, server_config};
use outboard_wire::Code;
use outboard_wire::handshake::auth::{TOKEN, Token};
use outboard_wire::handshake::{Extensions, Refusal, RefusalCode};
use tokio_rustls::TlsAcceptor;

use super::{AuthError, Config, Tls};
use outboard_auth::certificate::{self, read_chain};
use outboard_auth::sparing::STRANGERS;
use outboard_auth::tokens::{self, Known, Unaccepted};
use outboard_auth::{clients, files};
use outboard_control::identity::Identity;

/// The kind of a client's connection, and what it proves.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// By the Unix socket: the system names its user.
    Local {
        /// The user's number.
        user: u32,
    },
    /// By TCP, in the clear.
    Plain,
    /// By TLS, with this certificate, if it has shown one.
    Secure {
        /// In DER; it has been found good.
        certificate: Option<Vec<u8>>,
    },
}

/// Decides which clients may have sessions.
pub(crate) struct Gate {
    required: bool,
    tls: Tls,
    acceptor: Option<(TlsAcceptor, Option<Fingerprint>)>,
    tokens: Option<Known>,
}

/// The same for every reason: a client without a token learns nothing.
const NOT_ACCEPTED: &str = "the server does not accept this token: it is unknown, has expired, or was revoked; ask whoever runs the server for \
    another one (`outboard token create`)";

fn not_accepted() -> Refusal {
    Refusal::new(RefusalCode::NotAuthenticated, Code::TokenNotAccepted, NOT_ACCEPTED)
}

fn is_this_machine(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl Gate {
    /// For a server that listens there, and perhaps where virtual machines reach it.
    pub(crate) fn open(
        config: &Config,
        address: SocketAddr,
        guests: bool,
    ) -> Result<Gate, AuthError> {
        let public = !is_this_machine(address.ip());
        if let Some(state) = config.state.as_deref().filter(|state| state.exists()) {
            // A user who can write there could replace the key or the tokens.
            files::own_folder(state)
                .map_err(|error| AuthError::file("the folder", state, error))?;
        }
        let tokens = config.state.as_deref().map(Known::open);
        if let Some((tokens, state)) = tokens.as_ref().zip(config.state.as_deref())
            && let Some(problem) = tokens.problem()
        {
            return Err(AuthError::file("the tokens", tokens::file(state), problem));
        }
        let shown =
            config.leases || config.client_ca.is_some() || tokens.as_ref().is_some_and(Known::any);
        if public && !shown && !config.allow_anonymous {
            return Err(AuthError::Open { address });
        }
        if guests && !shown && !config.allow_anonymous {
            return Err(AuthError::OpenToGuests);
        }
        let required = config.required || ((public || guests) && !config.allow_anonymous);
        let wanted = config.tls == Tls::On || (config.tls == Tls::Auto && public);
        let acceptor = if config.tls == Tls::Off { None } else { acceptor(config, wanted)? };
        if wanted && acceptor.is_none() {
            return Err(AuthError::NoCertificate);
        }
        if public && config.tls == Tls::Off {
            tracing::warn!(%address, "connections are not encrypted: tokens and data can be read and changed on the way");
        }
        if (public || guests) && !required {
            tracing::warn!(%address, "whoever can connect is let in");
        }
        Ok(Gate { required, tls: config.tls, acceptor, tokens })
    }

    /// The TLS settings, if connections are encrypted.
    pub(crate) fn acceptor(&self) -> Option<&TlsAcceptor> {
        self.acceptor.as_ref().map(|(acceptor, _)| acceptor)
    }

    /// The fingerprint of the certificate by which clients know the server.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        self.acceptor.as_ref().and_then(|(_, fingerprint)| *fingerprint)
    }

    /// Whether a client from there must encrypt.
    pub(crate) fn must_encrypt(&self, peer: SocketAddr) -> bool {
        match self.tls {
            Tls::On => true,
            Tls::Auto => !is_this_machine(peer.ip()),
            Tls::Off => false,
        }
    }

    /// Whether a client must encrypt even if what it sends does not leave this machine.
    pub(crate) fn must_always_encrypt(&self) -> bool {
        self.tls == Tls::On
    }

    /// The identity of the client that sent this hello.
    pub(crate) fn identify(&self, said: &Extensions, way: &Way) -> Result<Identity, Refusal> {
        let malformed = |_| Refusal {
            code: RefusalCode::BadHello,
            sentence: "the token is malformed".to_owned(),
        };
        if let Some(Token(token)) = said.get(TOKEN).map_err(malformed)? {
            return self.check(&token);
        }
        match way {
            Way::Local { user } => Ok(Identity::user(*user)),
            Way::Secure { certificate: Some(certificate) } => clients::identity(certificate)
                .ok_or_else(|| {
                    let sentence =
                        "the certificate has no common name that could be the name of an owner";
                    Refusal { code: RefusalCode::NotAuthenticated, sentence: sentence.to_owned() }
                }),
            Way::Plain | Way::Secure { certificate: None } if !self.required => {
                Ok(Identity::anonymous())
            }
            Way::Plain | Way::Secure { certificate: None } => {
                let sentence = "this server wants to know who its clients are: set OUTBOARD_TOKEN or OUTBOARD_TOKEN_FILE to a token, which \
                                `outboard token create` makes on the server's machine";
                Err(Refusal { code: RefusalCode::NotAuthenticated, sentence: sentence.to_owned() })
            }
        }
    }

    fn check(&self, token: &str) -> Result<Identity, Refusal> {
        let checked = match &self.tokens {
            Some(tokens) => {
                tokens.refresh();
                tokens.check(token, Timestamp::now())
            }
            None => Err(Unaccepted::Unknown),
        };
        checked.map_err(|reason| {
            match (STRANGERS.admits("token"), reason) {
                (None, _) => {}
                (Some(left_out), Unaccepted::Unknown) => {
                    tracing::warn!(left_out, "a token that is not known was shown");
                }
                (Some(left_out), Unaccepted::NoLonger(token, state)) => {
                    tracing::warn!(token, %state, left_out, "a token was shown in vain");
                }
            }
            not_accepted()
        })
    }

    /// When the token that this client has shown expires, if it does.
    pub(crate) fn expires(&self, identity: &Identity) -> Option<Timestamp> {
        self.tokens.as_ref()?.expires(identity)
    }

    /// A client that has waited for a session may have lost its right meanwhile.
    pub(crate) fn still(&self, identity: &Identity) -> Result<(), Refusal> {
        match &self.tokens {
            Some(tokens) if !tokens.may_start(identity, Timestamp::now()) => Err(not_accepted()),
            _ => Ok(()),
        }
    }

    /// Whether a client that was away may have its session back: not if its token was revoked
    /// meanwhile.
    pub(crate) fn goes_on(&self, identity: &Identity) -> Result<(), Refusal> {
        let Some(tokens) = &self.tokens else { return Ok(()) };
        tokens.refresh();
        if tokens.is_over(identity) { Err(not_accepted()) } else { Ok(()) }
    }

    /// Reads the tokens again if they have changed; then whose sessions are to end.
    pub(crate) fn refresh(&self) -> Option<impl Fn(&Identity) -> bool + '_> {
        let tokens = self.tokens.as_ref()?;
        tokens.take_changed().then_some(|identity: &Identity| tokens.is_over(identity))
    }
}

/// What encrypts with the server's certificate; the one of its own making is made only if it is
/// `wanted`.
fn acceptor(
    config: &Config,
    wanted: bool,
) -> Result<Option<(TlsAcceptor, Option<Fingerprint>)>, AuthError> {
    let (certificate, key) = match (&config.certificate, &config.key, config.state.as_deref()) {
        (Some(certificate), Some(key), _) => (certificate.clone(), key.clone()),
        (Some(_), None, _) => return Err(AuthError::Half { given: "--tls-cert" }),
        (None, Some(_), _) => return Err(AuthError::Half { given: "--tls-key" }),
        (None, None, Some(state)) if wanted || certificate::is_there(state) => {
            certificate::own(state)?
        }
        (None, None, _) => return Ok(None),
    };
    let clients = config.client_ca.as_deref().map(clients::verifier).transpose()?;
    let (chain, secret) = read_chain(&certificate, &key)?;
    let fingerprint = chain.first().map(|first| Fingerprint::of(first));
    if let Some(fingerprint) = fingerprint {
        tracing::info!(%fingerprint, certificate = %certificate.display(), "connections can be encrypted");
    }
    let unfit = |error| AuthError::file("the certificate", Path::new(&certificate), error);
    let settings = server_config(chain, secret, clients).map_err(unfit)?;
    Ok(Some((TlsAcceptor::from(Arc::new(settings)), fingerprint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_auth::tokens::create;
    use outboard_control::identity::Limits;
    use tempfile::tempdir;

    const LOOPBACK: &str = "127.0.0.1:9470";
    const PUBLIC: &str = "0.0.0.0:9470";

    fn open(config: &Config, address: &str) -> Result<Gate, AuthError> {
        Gate::open(config, address.parse().unwrap(), false)
    }

    #[test]
    fn a_server_that_others_reach_asks_who_they_are_or_does_not_start() {
        let above = tempdir().unwrap();
        let state = above.path().join("state");
        let config = Config { state: Some(state.clone()), ..Config::default() };
        for address in [PUBLIC, "[::]:9470", "10.1.2.3:9470"] {
            assert!(matches!(open(&config, address), Err(AuthError::Open { .. })), "{address}");
        }
        let off = Config { tls: Tls::Off, ..config.clone() };
        assert!(matches!(open(&off, PUBLIC), Err(AuthError::Open { .. })), "encrypted or not");
        for address in [LOOPBACK, "[::1]:9470"] {
            assert!(!open(&config, address).unwrap().required, "{address}");
        }
        assert!(!state.exists(), "nothing is left where nothing is needed");
        let told = Config { allow_anonymous: true, ..config.clone() };
        let gate = open(&told, PUBLIC).unwrap();
        assert!(!gate.required && gate.acceptor().is_some(), "it encrypts all the same");
        create(&state, "alice", None, Limits::default()).unwrap();
        let gate = open(&config, PUBLIC).unwrap();
        assert!(gate.required && gate.acceptor().is_some());
        assert!(gate.must_encrypt("10.1.1.1:5".parse().unwrap()));
        assert!(!gate.must_encrypt("[::ffff:127.0.0.1]:5".parse().unwrap()));
        assert!(open(&Config { required: true, ..config.clone() }, LOOPBACK).unwrap().required);
        assert!(matches!(
            open(&Config { allow_anonymous: true, ..Config::default() }, PUBLIC),
            Err(AuthError::NoCertificate)
        ));
    }

    #[test]
    fn a_server_for_virtual_machines_asks_who_they_are_or_does_not_start() {
        let state = tempdir().unwrap();
        let config = Config { state: Some(state.path().to_owned()), ..Config::default() };
        let open = |config: &Config| Gate::open(config, LOOPBACK.parse().unwrap(), true);
        assert!(matches!(open(&config), Err(AuthError::OpenToGuests)));
        let told = Config { allow_anonymous: true, ..config.clone() };
        let gate = open(&told).unwrap();
        assert!(!gate.required && gate.acceptor().is_none(), "nobody is on the way");
        create(state.path(), "alice", None, Limits::default()).unwrap();
        let gate = open(&config).unwrap();
        assert!(gate.required && !gate.must_always_encrypt());
        assert!(gate.identify(&Extensions::default(), &Way::Plain).is_err());
        let strict = Config { tls: Tls::On, ..config };
        assert!(open(&strict).unwrap().must_always_encrypt());
    }

    #[test]
    fn half_a_pair_and_a_folder_of_others_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempdir().unwrap();
        create(state.path(), "alice", None, Limits::default()).unwrap();
        let config = Config { state: Some(state.path().to_owned()), ..Config::default() };
        for address in [LOOPBACK, PUBLIC] {
            let half = Config { certificate: Some("/x.crt".into()), ..config.clone() };
            assert!(matches!(open(&half, address), Err(AuthError::Half { given: "--tls-cert" })));
            let half = Config { key: Some("/x.key".into()), ..config.clone() };
            assert!(matches!(open(&half, address), Err(AuthError::Half { given: "--tls-key" })));
        }
        assert!(open(&config, PUBLIC).is_ok());
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = open(&config, LOOPBACK).map(drop).unwrap_err().to_string();
        assert!(error.contains("others than its user can write"), "{error}");
    }

    #[test]
    fn who_shows_nothing_is_somebody_only_where_that_is_enough() {
        let state = tempdir().unwrap();
        let (token, record) = create(state.path(), "alice", None, Limits::default()).unwrap();
        let config = Config { state: Some(state.path().to_owned()), ..Config::default() };
        let (open_gate, shut) = (open(&config, LOOPBACK).unwrap(), open(&config, PUBLIC).unwrap());
        let (nothing, mut shown, mut wrong) =
            (Extensions::default(), Extensions::default(), Extensions::default());
        shown.set(TOKEN, &Token(token));
        wrong.set(TOKEN, &Token("obt_wrong".into()));
        let secure = Way::Secure { certificate: None };
        assert_eq!(open_gate.identify(&nothing, &Way::Plain).unwrap(), Identity::anonymous());
        assert_eq!(
            open_gate.identify(&nothing, &Way::Local { user: 7 }).unwrap(),
            Identity::user(7)
        );
        assert_eq!(shut.identify(&nothing, &Way::Local { user: 7 }).unwrap(), Identity::user(7));
        for way in [&Way::Plain, &secure] {
            let refused = shut.identify(&nothing, way).unwrap_err();
            assert_eq!(refused.code, RefusalCode::NotAuthenticated);
            assert!(refused.sentence.contains("OUTBOARD_TOKEN"));
        }
        for gate in [&open_gate, &shut] {
            for way in [&Way::Plain, &secure, &Way::Local { user: 7 }] {
                let known = gate.identify(&shown, way).unwrap();
                assert_eq!(
                    (known.owner.as_str(), known.token.as_deref()),
                    ("alice", Some(record.id.as_str()))
                );
                assert_eq!(gate.identify(&wrong, way).unwrap_err().error(), Code::TokenNotAccepted);
            }
        }
    }
}
