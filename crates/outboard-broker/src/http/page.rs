//! The page for people: its files, which hold no data and so are for everybody.

use hyper::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, Method, Request};

/// A file of the page.
pub(super) struct File {
    /// Where browsers ask for it.
    pub(super) path: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        File {
            path: concat!("/page/", $name),
            kind: SCRIPT,
            text: include_str!(concat!("../../page/", $name)),
        }
    };
}

const FILES: &[File] = &[
    File {
        path: "/",
        kind: "text/html; charset=utf-8",
        text: include_str!("../../page/index.html"),
    },
    File {
        path: "/page/style.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("../../page/style.css"),
    },
    File {
        path: "/page/icon.svg",
        kind: "image/svg+xml",
        text: include_str!("../../page/icon.svg"),
    },
    script!("main.js"),
    script!("broker.js"),
    script!("chart.js"),
    script!("dom.js"),
    script!("format.js"),
    script!("leases.js"),
    script!("map.js"),
    script!("model.js"),
    script!("past.js"),
    script!("queue.js"),
    script!("visitor.js"),
];

/// The file that is asked for, if the page has it.
pub(super) fn file<B>(request: &Request<B>) -> Option<&'static File> {
    let path = request.uri().path();
    let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
    FILES.iter().find(|file| is_read && file.path == path)
}

/// What of the broker's answers a browser may do with: the page runs its own scripts, which talk
/// to this broker; nothing becomes script or markup out of text, nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Has browsers be careful with an answer, whatever is in it.
pub(super) fn protect(headers: &mut HeaderMap) {
    let mut say = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    say(CONTENT_SECURITY_POLICY, POLICY);
    say(X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(REFERRER_POLICY, "no-referrer");
    say(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    say(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
}

/// Whether a page of somebody else has a browser send this. A browser shows a certificate whoever
/// has it ask, so what changes something is for the broker's own page.
pub(super) fn is_foreign<B>(request: &Request<B>) -> bool {
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or(""));
    match (header("sec-fetch-site"), header("origin")) {
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            let host = header("host").unwrap_or_default();
            origin.strip_prefix("https://") != Some(host)
        }
        // It comes from no browser.
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method("POST").uri("/v1/requests");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("it is a request")
    }

    #[test]
    fn only_the_brokers_own_page_changes_something() {
        let host = ("host", "pool1:9472");
        for own in [
            &[host][..],
            &[host, ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
            &[host, ("origin", "https://pool1:9472")],
        ] {
            assert!(!is_foreign(&request(own)), "{own:?}");
        }
        for foreign in [
            &[host, ("sec-fetch-site", "cross-site")][..],
            &[host, ("sec-fetch-site", "same-site"), ("origin", "https://pool1:9472")],
            &[host, ("sec-fetch-site", "")],
            &[host, ("origin", "https://evil.example")],
            &[host, ("origin", "http://pool1:9472")],
            &[host, ("origin", "https://pool1:9473")],
            &[host, ("origin", "null")],
            &[("origin", "https://pool1:9472")],
        ] {
            assert!(is_foreign(&request(foreign)), "{foreign:?}");
        }
    }

    /// What the files name is there, and all that is there is given out.
    #[test]
    fn the_page_has_all_its_files() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let entries = std::fs::read_dir(&folder).expect("there is a page").flatten();
        let there: BTreeSet<String> = entries
            .filter(|entry| entry.path().is_file())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        let name = |file: &File| file.path.strip_prefix("/page/").unwrap_or("index.html");
        let given: BTreeSet<String> = FILES.iter().map(|file| name(file).to_owned()).collect();
        assert_eq!(given, there);
        for file in FILES {
            for quote in ["from \"./", "from './", "\"/page/"] {
                for rest in file.text.split(quote).skip(1) {
                    let named = rest.split(['"', '\'']).next().unwrap_or_default();
                    assert!(given.contains(named), "{} names {named}", file.path);
                }
            }
            assert!(!file.text.contains("innerHTML"), "{}", file.path);
        }
    }
}
