//! What is in files in PEM.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};

/// Why a file of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// It cannot be read, or is not in PEM.
    #[error(transparent)]
    Unreadable(#[from] pem::Error),
    /// There is nothing in it.
    #[error("there is no certificate in it")]
    Empty,
}

/// Certificates in a file in PEM, at least one.
///
/// # Errors
///
/// If there are none that can be read.
pub fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
    if certificates.is_empty() { Err(PemError::Empty) } else { Ok(certificates) }
}
