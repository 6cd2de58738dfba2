//! Certificates for tests, from an authority of the test's own. Also used by the tests of the crates above.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use moonrail_access::TlsSource;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    PublicKeyData, date_time_ymd,
};
use sha2::{Digest, Sha256};

/// An authority, and the folder that its certificates and keys lie in.
pub struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// What a certificate is to be.
pub struct Wish<'a> {
    pub names: &'a [&'a str],
    pub expired: bool,
    pub usages: &'a [ExtendedKeyUsagePurpose],
}

impl Default for Wish<'_> {
    fn default() -> Self {
        Self {
            names: &["127.0.0.1", "localhost"],
            expired: false,
            usages: &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        }
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        // Two authorities of one name would be told apart by their signatures only.
        let name = format!("authority {:02x?}", &key.public_key_raw()[1..9]);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let authority = Self { folder: tempfile::TempDir::new().unwrap(), issuer };
        authority.put("ca.pem", &authority.issuer.pem(), 0o644);
        authority
    }

    /// The usual certificate, under `name` in the folder; what was there under that name is replaced.
    pub fn issue(&self, name: &str) -> TlsSource {
        self.issue_as(name, &Wish::default())
    }

    pub fn issue_as(&self, name: &str, wish: &Wish<'_>) -> TlsSource {
        let names: Vec<String> = wish.names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = wish.usages.to_vec();
        if wish.expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let pin: String =
            Sha256::digest(key.subject_public_key_info()).iter().map(|byte| format!("{byte:02x}")).collect();
        // The key last: until then the two do not fit, and the old ones stay in force.
        self.put(&format!("{name}.pins"), &format!("# {name}\n{pin}\n"), 0o644);
        TlsSource {
            cert: self.put(&format!("{name}.pem"), &certificate.pem(), 0o644),
            key: self.put(&format!("{name}.key"), &key.serialize_pem(), 0o600),
            ca: vec![self.folder.path().join("ca.pem")],
            pins: None,
            name: None,
        }
    }

    /// The file with the pin of the certificate of that name.
    pub fn pins(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.pins"))
    }

    /// Puts a file into the folder by renaming.
    pub fn put(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let (new, path) = (self.folder.path().join("new"), self.folder.path().join(name));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, Permissions::from_mode(mode)).unwrap();
        std::fs::rename(&new, &path).unwrap();
        path
    }
}
