//! Flags by which a client recognises its server and shows who it is: each stands for a variable, which programs inherit.

use std::ffi::OsString;
use std::path::PathBuf;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// SHA-256 of the server's certificate; `outboard token fingerprint` prints it there. Also OUTBOARD_TLS_FINGERPRINT.
    #[arg(long, value_name = "sha256:HEX", help_heading = "Who is who")]
    fingerprint: Option<String>,
    /// Authorities that sign certificates of servers, in PEM. Also OUTBOARD_TLS_CA.
    #[arg(long, value_name = "FILE", help_heading = "Who is who")]
    tls_ca: Option<PathBuf>,
    /// The client's own certificate, in PEM. Also OUTBOARD_TLS_CERT.
    #[arg(long, value_name = "FILE", help_heading = "Who is who", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, in PEM. Also OUTBOARD_TLS_KEY.
    #[arg(long, value_name = "FILE", help_heading = "Who is who", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A file with the token to show. Also OUTBOARD_TOKEN_FILE; OUTBOARD_TOKEN holds a token itself.
    #[arg(long, value_name = "FILE", help_heading = "Who is who")]
    token_file: Option<PathBuf>,
    /// Whether to encrypt: `auto` does unless the server is on this machine and nothing is known to recognise it by. Also OUTBOARD_TLS.
    #[arg(long, value_name = "auto|on|off", value_parser = ["auto", "on", "off"], help_heading = "Who is who")]
    tls: Option<String>,
}

impl Args {
    /// Sets the variables, for this process and the program that it becomes.
    pub(crate) fn set(&self) {
        // A program may run in another folder.
        let path = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()).into_os_string())
        };
        if self.token_file.is_some() {
            // What is said here counts.
            // SAFETY: nothing but the main thread exists yet.
            unsafe { std::env::remove_var("OUTBOARD_TOKEN") };
        }
        let settings: [(&str, Option<OsString>); 6] = [
            ("OUTBOARD_TLS_FINGERPRINT", self.fingerprint.clone().map(OsString::from)),
            ("OUTBOARD_TLS_CA", path(&self.tls_ca)),
            ("OUTBOARD_TLS_CERT", path(&self.tls_cert)),
            ("OUTBOARD_TLS_KEY", path(&self.tls_key)),
            ("OUTBOARD_TOKEN_FILE", path(&self.token_file)),
            ("OUTBOARD_TLS", self.tls.clone().map(OsString::from)),
        ];
        for (name, value) in settings {
            if let Some(value) = value {
                // SAFETY: nothing but the main thread exists yet.
                unsafe { std::env::set_var(name, value) };
            }
        }
    }
}
