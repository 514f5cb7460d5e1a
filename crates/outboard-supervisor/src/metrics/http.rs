//! The small HTTP server for metrics: three paths, few connections, little patience. A connection
//! without a request makes room for a new one.

use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::config::{Config, MetricsError};
use super::names::Names;
use crate::supervisor::Supervisor;
use outboard_auth::hellos::{Origin, Seat, Seats, machine};
use outboard_auth::sparing::STRANGERS;

/// A client asks at once; one that has been silent for so long can be sent away.
const REQUEST_WITHIN: Duration = Duration::from_millis(10);
/// How long a whole connection may take: a request, its answer, and the peer's reading of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the head of a request may take.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// The longest head of a request, in bytes; the library takes no less.
const LONGEST_HEAD: usize = 8192;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What somebody hears who asks by a name that is not this server's.
const NOT_THIS_NAME: &str = "this server does not tell its metrics by that name: ask by an address, or \
     have the administrator name it by `outboard serve --metrics-host NAME`\n";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The port, open.
pub struct Listener {
    listener: TcpListener,
    names: Rc<Names>,
}

impl Listener {
    /// Opens the port, if there is to be one.
    pub(in super::super) async fn open(config: &Config) -> Result<Option<Listener>, MetricsError> {
        let Some(address) = &config.listen else { return Ok(None) };
        let failed = |error| MetricsError::Listen { address: address.clone(), error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        super::super::doors::widen(&listener);
        if !config.public && !is_loopback(at.ip()) {
            return Err(MetricsError::Public(at));
        }
        tracing::info!(address = %at, "metrics");
        let names = Rc::new(Names::new(address, &config.hosts));
        Ok(Some(Listener { listener, names }))
    }

    /// Answers requests. Never ends.
    pub(in super::super) async fn serve(self, supervisor: Rc<Supervisor>) {
        let seats = Seats::new(supervisor.parts.metrics, REQUEST_WITHIN);
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    super::super::doors::cannot_accept(&error).await;
                    continue;
                }
            };
            // Meanwhile others wait to be accepted: to turn them away would keep a probe out that
            // comes among many silent connections.
            let Some(seat) = seats.enter_or_wait(Origin::Machine(machine(peer.ip()))).await else {
                continue;
            };
            let (supervisor, names) = (Rc::clone(&supervisor), Rc::clone(&self.names));
            tokio::task::spawn_local(async move {
                tokio::select! {
                    biased;
                    attended = timeout(PATIENCE, attend(supervisor, &names, stream, &seat)) => {
                        if attended.is_err() {
                            tracing::debug!("who asked for metrics was too slow");
                        }
                    }
                    () = seat.is_wanted() => tracing::debug!("who asked for no metrics makes room for another"),
                }
            });
            // The connection that makes room is closed before the next one is accepted.
            yield_now().await;
        }
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Answers one request.
async fn attend(supervisor: Rc<Supervisor>, names: &Names, stream: TcpStream, seat: &Seat) {
    let answer = |request: Request<Incoming>| {
        // It has the time anew to read the answer.
        seat.has_spoken();
        let supervisor = Rc::clone(&supervisor);
        async move { Ok::<_, Infallible>(answer(&supervisor, names, &request).await) }
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(LONGEST_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a request for metrics came to nothing");
    }
}

async fn answer(
    supervisor: &Supervisor,
    names: &Names,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    if !names.are_asked(request.uri(), request.headers()) {
        if let Some(left_out) = STRANGERS.admits("metrics_name") {
            tracing::info!(host = ?request.headers().get(HOST), left_out, "metrics are asked for by a name that is not this server's: `outboard serve --metrics-host NAME` makes it one");
        }
        return respond(StatusCode::MISDIRECTED_REQUEST, PLAIN, NOT_THIS_NAME);
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut refused = respond(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n");
        refused.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/metrics" => match super::metrics(supervisor, supervisor.gauges.read().await) {
            Ok(text) => respond(StatusCode::OK, OPENMETRICS, text),
            Err(std::fmt::Error) => {
                respond(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "metrics cannot be written\n")
            }
        },
        "/healthz" => respond(StatusCode::OK, PLAIN, "serving\n"),
        "/readyz" => match supervisor.why_not_ready() {
            None => respond(StatusCode::OK, PLAIN, "ready\n"),
            Some(reason) => respond(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{reason}\n")),
        },
        _ => respond(StatusCode::NOT_FOUND, PLAIN, "there are /metrics, /healthz and /readyz\n"),
    }
}

fn respond(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, hyper::header::HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_read_nothing_unless_told() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let open = |listen: &str, public| {
            let config = Config { listen: Some(listen.to_owned()), public, hosts: Vec::new() };
            runtime.block_on(Listener::open(&config)).map(|listener| listener.is_some())
        };
        assert!(matches!(open("0.0.0.0:0", false), Err(MetricsError::Public(_))));
        assert!(open("0.0.0.0:0", true).unwrap() && open("127.0.0.1:0", false).unwrap());
        assert!(matches!(open("256.0.0.1:0", false), Err(MetricsError::Listen { .. })));
        assert!(
            is_loopback("::1".parse().unwrap()) && is_loopback("::ffff:127.0.0.1".parse().unwrap())
        );
        assert!(!is_loopback("::".parse().unwrap()));
    }
}
