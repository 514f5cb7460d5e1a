//! A certificate and a token that a server makes for one run.

use miette::{IntoDiagnostic, Result, WrapErr};
use outboard_auth::{certificate, tokens};
use outboard_supervisor::{Config, auth};
use outboard_transport::tls::Fingerprint;

use crate::private_folder::PrivateFolder;

/// By what clients know the server, and it them.
pub(super) struct OneTime {
    /// The certificate and the token's hash, for as long as this is held.
    pub(super) state: PrivateFolder,
    pub(super) fingerprint: Fingerprint,
    pub(super) token: String,
}

impl OneTime {
    /// Makes both, and has the server take no client without the token, who is `owner` to it.
    pub(super) fn make(owner: &str, tls: auth::Tls, config: &mut Config) -> Result<OneTime> {
        let state = PrivateFolder::create("job")
            .into_diagnostic()
            .wrap_err("cannot make a folder for this server's certificate")?;
        let made =
            certificate::own(state.path()).and_then(|(file, _)| certificate::fingerprint(&file));
        let fingerprint = made.into_diagnostic()?;
        let (token, _) =
            tokens::create(state.path(), owner, None, Default::default()).into_diagnostic()?;
        config.auth = auth::Config {
            state: Some(state.path().to_owned()),
            required: true,
            tls,
            ..auth::Config::default()
        };
        Ok(OneTime { state, fingerprint, token })
    }
}
