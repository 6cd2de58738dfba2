//! Where an engine's report is: the address that it was told to listen on for HTTP.

use std::fmt;
use std::str::FromStr;

/// `http://host:port`, without a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    base: String,
    authority: String,
}

impl Endpoint {
    /// Where the report is.
    pub(crate) fn report(&self) -> String {
        format!("{}/report", self.base)
    }

    /// `host:port`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }
}

impl FromStr for Endpoint {
    type Err = String;

    /// `http://host:port`, `host:port`, and either with the path of the report or of the metrics.
    fn from_str(text: &str) -> Result<Self, String> {
        let takes = "give http://host:port, as the engine was told with MOONRAIL_METRICS";
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: ureq::http::Uri = whole.parse().map_err(|error| format!("{error}; {takes}"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(format!("not a URL with a host; {takes}"));
        };
        if scheme != "http" && scheme != "https" {
            return Err(format!("{scheme} is not spoken; {takes}"));
        }
        if authority.host().is_empty() || authority.port_u16().is_none_or(|port| port == 0) {
            return Err(format!("host or port is missing; {takes}"));
        }
        if !matches!(uri.path(), "" | "/" | "/report" | "/metrics") || uri.query().is_some() {
            return Err(format!("{} is no path of an engine; {takes}", uri.path()));
        }
        Ok(Self { base: format!("{scheme}://{authority}"), authority: authority.to_string() })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_ways_to_write_an_address_mean_the_same() {
        let urls = [
            "127.0.0.1:9100",
            "http://127.0.0.1:9100",
            "http://127.0.0.1:9100/report",
            "127.0.0.1:9100/metrics",
        ];
        for text in urls {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.report(), "http://127.0.0.1:9100/report", "{text}");
            assert_eq!(endpoint.authority(), "127.0.0.1:9100");
        }
        assert_eq!("http://[::1]:7/".parse::<Endpoint>().unwrap().report(), "http://[::1]:7/report");
    }

    #[test]
    fn what_is_no_address_says_what_to_give() {
        for text in [
            "",
            "host",
            "http://host",
            "ftp://host:1",
            "host:0",
            "host:99999",
            "http://host:1/x",
            "host:1/report?x",
        ] {
            assert!(text.parse::<Endpoint>().unwrap_err().contains("give http://host:port"), "{text}");
        }
    }
}
