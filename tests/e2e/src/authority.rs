//! An authority that signs certificates.

use crate::Folder;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority, and what it signs.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, in PEM.
    pub certificate: String,
}

impl Authority {
    /// A new one of that name.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// Certificate and key in files, for a server on loopback or a client of that name.
    pub fn sign(&self, folder: &Folder, name: &str, last_year: i32) -> [String; 2] {
        self.sign_as(folder, name, None, last_year)
    }

    /// The same with that organizational unit, by which a broker knows a role.
    pub fn sign_as(
        &self,
        folder: &Folder,
        name: &str,
        unit: Option<&str>,
        last_year: i32,
    ) -> [String; 2] {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])
            .expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(unit) = unit {
            params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        }
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(last_year, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        [
            folder.write(&format!("{name}.crt"), &certificate),
            folder.write(&format!("{name}.key"), &key.serialize_pem()),
        ]
    }
}
