//! How a server knows its clients.

use std::path::PathBuf;

use outboard_supervisor::auth::{Tls, usual_state_folder};

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Whether connections over TCP must be encrypted: `auto` requires it except from this machine,
    /// `on` always, `off` never.
    #[arg(long, default_value = "auto", value_name = "auto|on|off")]
    tls: TlsChoice,
    /// The server's certificate chain in PEM. Without it, the server makes a certificate, which
    /// clients recognise by its fingerprint.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities in PEM: a client with a certificate of one of them is accepted, as the owner
    /// that its common name says.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// The folder with the server's certificate and its tokens. Without it outboard in
    /// $XDG_STATE_HOME or ~/.local/state, for root /var/lib/outboard.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Accept every client that can connect, even from other machines: all of them can run code on
    /// the GPU.
    #[arg(long)]
    allow_anonymous: bool,
    /// Require a token or a certificate of every client over TCP, from this machine too.
    #[arg(long, conflicts_with = "allow_anonymous")]
    require_authentication: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum TlsChoice {
    Auto,
    On,
    Off,
}

/// The folder that is named, or the usual one.
pub(crate) fn state_folder(given: Option<PathBuf>) -> Option<PathBuf> {
    given.or_else(|| {
        usual_state_folder(|name| std::env::var_os(name), rustix::process::geteuid().is_root())
    })
}

impl Args {
    /// What the flags say.
    pub(crate) fn settings(&self) -> outboard_supervisor::auth::Config {
        let tls = match self.tls {
            TlsChoice::Auto => Tls::Auto,
            TlsChoice::On => Tls::On,
            TlsChoice::Off => Tls::Off,
        };
        let mut auth = outboard_supervisor::auth::Config {
            tls,
            ..outboard_supervisor::auth::Config::default()
        };
        (auth.certificate, auth.key) = (self.tls_cert.clone(), self.tls_key.clone());
        auth.client_ca = self.client_ca.clone();
        auth.state = state_folder(self.state.clone());
        auth.allow_anonymous = self.allow_anonymous;
        auth.required = self.require_authentication;
        auth
    }
}
