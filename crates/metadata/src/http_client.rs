//! Keys and values in an HTTP metadata server (Mooncake TE wire, metadata server over HTTP). Knows no keys.

use std::io;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::{MetadataError, MetadataErrorKind, WaitStage};

/// To connect, as genuine engines have it.
const CONNECT: Duration = Duration::from_millis(1500);
/// For a whole request, as genuine engines have it.
const TOTAL: Duration = Duration::from_secs(3);
/// The longest value taken: the longest descriptor that a handshake port may be set to give.
const LONGEST_VALUE: u64 = 128 << 20;

/// What goes into a query unencoded (RFC 3986, unreserved characters).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A metadata server. May be used from any thread. Each request has a connection of its own: they are few, and none is
/// then found dead after the server was restarted, or shared with a forked child.
#[derive(Debug)]
pub(crate) struct KeyValueClient {
    agent: ureq::Agent,
    url: String,
}

/// What became of a PUT that the server understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Done,
    /// The server does not replace this key; its words.
    Refused(String),
}

impl KeyValueClient {
    /// `url` is the whole address, such as `http://host:8080/metadata`. Nothing is connected yet.
    pub(crate) fn new(url: &str) -> Result<KeyValueClient, MetadataError> {
        let bad = |text: String| MetadataError::new(MetadataErrorKind::BadAddress, url, text);
        let parsed = url.parse::<ureq::http::Uri>().map_err(|error| bad(format!("not a URL: {error}")))?;
        let authority = parsed.authority().ok_or_else(|| bad("the URL has no host".to_owned()))?;
        if authority.host().is_empty() {
            return Err(bad("the URL has no host".to_owned()));
        }
        // The parser keeps whatever stands behind the colon.
        let port = authority.as_str().rsplit_once(authority.host()).map_or("", |(_, port)| port);
        if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(bad(format!("bad port {port:?} in the URL")));
        }
        let agent = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(TOTAL))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .max_idle_connections_per_host(0)
            // The server is part of the cluster, and its address was given to us.
            .proxy(None)
            .user_agent(concat!("moonrail/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(KeyValueClient { agent, url: url.to_owned() })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, MetadataError> {
        let (status, body) = self.answer(self.agent.get(self.address(key)).call())?;
        match status {
            200 => Ok(Some(body)),
            404 => Ok(None),
            _ => Err(self.unexpected("GET", status, &body)),
        }
    }

    /// What the server has at the root of its URL, asked for as JSON; `None` where there is no such page.
    pub(crate) fn listing(&self) -> Result<Option<Vec<u8>>, MetadataError> {
        let root = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        let authority = root.split(['/', '?']).next().unwrap_or_default();
        let scheme = self.url.split_once("://").map_or("http", |(scheme, _)| scheme);
        let (status, body) = self.answer(self.agent.get(format!("{scheme}://{authority}/?json=1")).call())?;
        Ok((status == 200).then_some(body))
    }

    pub(crate) fn put(&self, key: &str, value: &[u8]) -> Result<Put, MetadataError> {
        let request = self.agent.put(self.address(key)).content_type("application/json");
        // Values are put without the newline that ends handshake messages.
        let (status, body) = self.answer(request.send(value.trim_ascii_end()))?;
        match status {
            200 => Ok(Put::Done),
            400 | 409 => Ok(Put::Refused(excerpt(&body))),
            _ => Err(self.unexpected("PUT", status, &body)),
        }
    }

    /// Whether there was such a key.
    pub(crate) fn delete(&self, key: &str) -> Result<bool, MetadataError> {
        let (status, body) = self.answer(self.agent.delete(self.address(key)).call())?;
        match status {
            200 => Ok(true),
            404 => Ok(false),
            _ => Err(self.unexpected("DELETE", status, &body)),
        }
    }

    fn address(&self, key: &str) -> String {
        let joint = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{joint}key={}", self.url, utf8_percent_encode(key, ENCODED))
    }

    fn answer(
        &self,
        outcome: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<(u16, Vec<u8>), MetadataError> {
        let mut response = outcome.map_err(|error| self.failure(error))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(LONGEST_VALUE).read_to_vec();
        Ok((status, body.map_err(|error| self.failure(error))?))
    }

    pub(crate) fn unexpected(&self, verb: &str, status: u16, body: &[u8]) -> MetadataError {
        let text =
            format!("the metadata server answered {verb} with HTTP status {status}: {}", excerpt(body));
        MetadataError::new(MetadataErrorKind::Http(status), self.url.as_str(), text)
    }

    fn failure(&self, error: ureq::Error) -> MetadataError {
        let new = |kind, text: String| MetadataError::new(kind, self.url.as_str(), text);
        match error {
            ureq::Error::Io(error) => sort_io(&error, &self.url),
            ureq::Error::Timeout(stage) => {
                let stage = match stage {
                    ureq::Timeout::Resolve => WaitStage::Resolve,
                    ureq::Timeout::Connect => WaitStage::Connect,
                    ureq::Timeout::SendRequest | ureq::Timeout::SendBody => WaitStage::Request,
                    _ => WaitStage::Reply,
                };
                MetadataError::timeout(
                    stage,
                    self.url.as_str(),
                    format!("metadata server: timed out {stage}"),
                )
            }
            ureq::Error::HostNotFound => {
                new(MetadataErrorKind::Resolve, "the metadata server's host name does not resolve".to_owned())
            }
            ureq::Error::ConnectionFailed => {
                new(MetadataErrorKind::Unreachable, "the metadata server cannot be connected to".to_owned())
            }
            ureq::Error::BadUri(text) => new(MetadataErrorKind::BadAddress, format!("not a URL: {text}")),
            ureq::Error::BodyExceedsLimit(limit) => new(
                MetadataErrorKind::TooLarge,
                format!("the metadata server's answer is above {limit} bytes"),
            ),
            ureq::Error::Protocol(error) => {
                new(MetadataErrorKind::Protocol, format!("the metadata server does not speak HTTP: {error}"))
            }
            other => new(MetadataErrorKind::Protocol, format!("metadata server: {other}")),
        }
    }
}

fn sort_io(error: &io::Error, url: &str) -> MetadataError {
    let mut sorted = MetadataError::from_io(error, WaitStage::Reply, url);
    sorted.message = match sorted.kind {
        MetadataErrorKind::Refused => "connection refused: no metadata server listens there".to_owned(),
        _ => format!("metadata server: {}", sorted.message),
    };
    sorted
}

/// What a server says of an error, in one short line.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}
