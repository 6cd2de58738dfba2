//! From the files of a [`TlsSource`] to what rustls takes.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonrail_wire::auth::Port;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use zeroize::Zeroizing;

use super::fault::TlsError;
use super::verify::{Pin, Pinned};
use super::{TlsSource, protocol};
use crate::allow::Allow;
use crate::files::{FileFault, Readers, Stamp, open};

/// Longest file, in bytes: a system's whole list of authorities is a quarter of that.
const LONGEST: u64 = 1 << 20;

/// What connections are made of, for each role and port.
#[derive(Debug)]
pub(super) struct Configs {
    client: [Arc<ClientConfig>; 2],
    server: [Arc<ServerConfig>; 2],
}

impl Configs {
    pub(super) fn read(source: &TlsSource, allow: Allow) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let identity = Identity::read(source)?;
        let trust = Trust::read(source, &provider, allow)?;
        let wrong = |error: rustls::Error| TlsError::Identity {
            cert: source.cert.clone(),
            key: source.key.clone(),
            what: error.to_string(),
        };
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(wrong)?
            .dangerous()
            .with_custom_certificate_verifier(trust.servers)
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(wrong)?;
        // Each connection is judged by the files of its time.
        client.resumption = Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(wrong)?
            .with_client_cert_verifier(trust.clients)
            .with_single_cert(identity.chain, identity.key)
            .map_err(wrong)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        // An idle lane has nothing to read.
        server.send_tls13_tickets = 0;
        Ok(Self {
            client: PORTS.map(|port| {
                client.alpn_protocols = vec![protocol(port).to_vec()];
                Arc::new(client.clone())
            }),
            server: PORTS.map(|port| {
                server.alpn_protocols = vec![protocol(port).to_vec()];
                Arc::new(server.clone())
            }),
        })
    }

    pub(super) fn client(&self, port: Port) -> &Arc<ClientConfig> {
        &self.client[slot(port)]
    }

    pub(super) fn server(&self, port: Port) -> &Arc<ServerConfig> {
        &self.server[slot(port)]
    }
}

const PORTS: [Port; 2] = [Port::Data, Port::Handshake];

fn slot(port: Port) -> usize {
    usize::from(port == PORTS[1])
}

/// The state of every file, in order.
pub(super) fn look(source: &TlsSource) -> Result<Vec<Stamp>, TlsError> {
    let files = [&source.cert, &source.key].into_iter().chain(&source.ca).chain(&source.pins);
    files
        .map(|path| {
            let meta = std::fs::metadata(path);
            meta.map(|meta| Stamp::of(&meta)).map_err(|error| TlsError::Read { path: path.clone(), error })
        })
        .collect()
}

/// Who this engine is.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn read(source: &TlsSource) -> Result<Self, TlsError> {
        let chain = certificates(&source.cert)?;
        let bytes = bytes(&source.key, Readers::Owner)?;
        let key = PrivateKeyDer::from_pem_slice(&bytes)
            .map_err(|_| content(&source.key, "it holds no private key in PEM (PKCS#8, PKCS#1 or SEC1)"))?;
        Ok(Self { chain, key })
    }
}

/// Whom it believes.
struct Trust {
    servers: Arc<dyn ServerCertVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Trust {
    fn read(source: &TlsSource, provider: &Arc<CryptoProvider>, allow: Allow) -> Result<Self, TlsError> {
        let pins = source.pins.as_deref().map(read_pins).transpose()?;
        let authorities = Self::authorities(source, provider, allow)?;
        let Some(pins) = pins else { return authorities.ok_or(TlsError::NoTrust) };
        let (servers, clients) = authorities.map(|trust| (trust.servers, trust.clients)).unzip();
        let servers =
            Pinned { authority: servers, pins: pins.clone(), optional: false, provider: provider.clone() };
        let clients =
            Pinned { authority: clients, pins, optional: allow.anonymous, provider: provider.clone() };
        Ok(Self { servers: Arc::new(servers), clients: Arc::new(clients) })
    }

    fn authorities(
        source: &TlsSource,
        provider: &Arc<CryptoProvider>,
        allow: Allow,
    ) -> Result<Option<Self>, TlsError> {
        let Some(first) = source.ca.first() else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for path in &source.ca {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| content(path, &error.to_string()))?;
            }
        }
        let roots = Arc::new(roots);
        let wrong = |error: &dyn std::fmt::Display| content(first, &error.to_string());
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider.clone())
            .build()
            .map_err(|error| wrong(&error))?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        let clients = if allow.anonymous { clients.allow_unauthenticated() } else { clients };
        let clients = clients.clear_root_hint_subjects().build().map_err(|error| wrong(&error))?;
        Ok(Some(Self { servers, clients }))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = bytes(path, Readers::All)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(content(path, "it holds no certificate in PEM")),
        Err(error) => Err(content(path, &error.to_string())),
    }
}

fn read_pins(path: &Path) -> Result<Vec<Pin>, TlsError> {
    let bytes = bytes(path, Readers::All)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| content(path, "it is not text"))?;
    let lines = text.lines().map(str::trim).enumerate();
    let pins: Result<Vec<Pin>, TlsError> = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(nth, line)| {
            let what =
                || format!("line {}: a pin is the SHA-256 of a public key, 64 hexadecimal digits", nth + 1);
            pin(line).ok_or_else(|| content(path, &what()))
        })
        .collect();
    match pins {
        Ok(pins) if pins.is_empty() => Err(content(path, "it holds no pin")),
        pins => pins,
    }
}

fn pin(digits: &str) -> Option<Pin> {
    let mut pin = Pin::default();
    if digits.len() != 2 * pin.len() || !digits.is_ascii() {
        return None;
    }
    for (byte, pair) in pin.iter_mut().zip(digits.as_bytes().as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? << 4 | low?).ok()?;
    }
    Some(pin)
}

fn bytes(path: &Path, readers: Readers) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    let owned = || -> PathBuf { path.to_owned() };
    let (file, _) = open(path, readers).map_err(|fault| match fault {
        FileFault::Read(error) => TlsError::Read { path: owned(), error },
        FileFault::NotAFile => TlsError::NotAFile(owned()),
        FileFault::Permissions(mode) => TlsError::Permissions { path: owned(), mode },
        FileFault::Owner(owner) => TlsError::Owner { path: owned(), owner },
    })?;
    let size = file.metadata().map_or(0, |meta| meta.len()).min(LONGEST);
    let mut bytes = Zeroizing::new(Vec::with_capacity(size as usize + 1));
    let read = file.take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| TlsError::Read { path: owned(), error })?;
    if bytes.len() as u64 > LONGEST {
        return Err(content(path, "it is longer than 1 MiB"));
    }
    Ok(bytes)
}

fn content(path: &Path, what: &str) -> TlsError {
    TlsError::Content { path: path.to_owned(), what: what.to_owned() }
}
