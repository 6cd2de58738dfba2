//! Asking one engine for its report: whom, how long, how much. Knows nothing of other engines.
//!
//! A segment's word decides whom this server calls, so it calls nothing but `GET http://HOST:PORT/report`, follows no
//! redirect, and calls its own machine only for segments that are on it.

use std::net::IpAddr;
use std::time::Duration;

use ureq::http::Uri;

use super::report::Report;

/// To connect, names included.
const CONNECT: Duration = Duration::from_millis(300);
/// For a whole answer.
const TOTAL: Duration = Duration::from_millis(800);
/// A thousand peers are about 700 KB.
const LONGEST: u64 = 2 << 20;

/// Asks engines. May be used from any thread.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    agent: ureq::Agent,
}

impl Asker {
    pub(super) fn new() -> Asker {
        let agent = ureq::Agent::config_builder()
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(TOTAL))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .max_idle_connections_per_host(0)
            .proxy(None)
            .user_agent(concat!("moonrail/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Asker { agent }
    }

    /// The report of the engine at `url`, as [`endpoint`] gave it. Takes a second at most.
    ///
    /// # Errors
    /// Why there is none, in a few words.
    pub(super) fn ask(&self, url: &str) -> Result<Report, String> {
        let mut response = self.agent.get(url).call().map_err(|error| tell(&error))?;
        if response.status() != 200 {
            return Err(format!("it answers with HTTP status {}", response.status().as_u16()));
        }
        let body =
            response.body_mut().with_config().limit(LONGEST).read_to_vec().map_err(|error| tell(&error))?;
        Report::parse(&body)
    }
}

/// What is asked for the report of a segment that announces `announced`; `is_here`: its engine is on this machine.
///
/// # Errors
/// Why nobody is asked.
pub(super) fn endpoint(announced: &str, is_here: bool) -> Result<String, String> {
    let not = |why: &str| Err(format!("what it announces is not asked: {why}"));
    let Ok(uri) = announced.parse::<Uri>() else { return not("it is no URL") };
    if uri.scheme_str() != Some("http") {
        return not("it is not http://HOST:PORT");
    }
    let (Some(host), Some(port)) = (uri.host(), uri.port_u16().filter(|port| *port != 0)) else {
        return not("it is not http://HOST:PORT");
    };
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    if authority.contains('@') || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return not("it is more than http://HOST:PORT");
    }
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    if address.is_some_and(|ip| ip.is_unspecified()) {
        return not("its address leads nowhere");
    }
    let loopback =
        host.eq_ignore_ascii_case("localhost") || address.is_some_and(|ip| ip.to_canonical().is_loopback());
    if loopback && !is_here {
        return not(
            "it is a loopback address of another machine; start it with an address that is reached from here",
        );
    }
    Ok(format!("http://{host}:{port}/report"))
}

fn tell(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => "no answer in time".to_owned(),
        ureq::Error::HostNotFound => "its host's name does not resolve".to_owned(),
        ureq::Error::ConnectionFailed => "it cannot be connected to".to_owned(),
        ureq::Error::BodyExceedsLimit(limit) => format!("its answer is longer than {limit} bytes"),
        ureq::Error::Io(error) => match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => error.to_string(),
        },
        _ => "it does not speak HTTP".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_http_address_is_asked_and_only_for_its_report() {
        assert_eq!(endpoint("http://10.0.0.7:9100", false).as_deref(), Ok("http://10.0.0.7:9100/report"));
        assert_eq!(endpoint("http://[fd00::1]:9100/", false).as_deref(), Ok("http://[fd00::1]:9100/report"));
        for refused in [
            "",
            "10.0.0.7:9100",
            "https://10.0.0.7:9100",
            "file:///etc/passwd",
            "http://10.0.0.7",
            "http://10.0.0.7:0",
            "http://10.0.0.7:99999",
            "http://user@10.0.0.7:9100",
            "http://10.0.0.7:9100/metadata?key=x",
            "http://10.0.0.7:9100/other",
            "http://0.0.0.0:9100",
            "http://[::]:9100",
            "http://a b:1",
        ] {
            assert!(endpoint(refused, true).is_err(), "{refused:?} would be asked");
        }
    }

    #[test]
    fn this_machine_is_asked_only_for_segments_that_are_on_it() {
        for local in [
            "http://127.0.0.1:9100",
            "http://localhost:9100",
            "http://[::1]:9100",
            "http://[::ffff:127.0.0.1]:9100",
        ] {
            assert!(endpoint(local, true).is_ok(), "{local}");
            assert!(endpoint(local, false).is_err_and(|why| why.contains("loopback")), "{local}");
        }
    }
}
