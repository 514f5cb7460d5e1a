//! Which request gets which answer.

use super::body::{Bodies, OF_A_CLIENT, OF_A_JOB, OF_A_LEASE, OF_A_SERVER};
use super::page;
use super::places::Answering;
use crate::desk::{Kind, No};
use crate::front::{Front, StandsBy};
use crate::metrics;
use crate::roles::{Caller, UNKNOWN, caller};
use crate::service::Service;
use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use outboard_pool::api::{PROOF_HEADER, Refused, Role};
use outboard_pool::lease::proven;
use outboard_pool::words::{LeaseNumber, Malformed, Purpose, ServerName};
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;

const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What `/healthz` says.
const LEADS: &str = "serving\n";
/// The same of a broker that would lead if no other one did.
const STANDS_BY: &str = "standing by\n";

/// A page of somebody else uses a certificate.
const FOREIGN: &str = "a page of another site has asked for this; use the broker's own page";

/// The longest that a request may ask to be kept waiting; a ticket is good for longer.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(super) type Answer = Response<Full<Bytes>>;

/// Answers a request. `is_known` is called once the caller has shown who it is, and says that it is
/// being answered.
pub(super) async fn answer(
    front: &Front,
    bodies: &Bodies,
    request: Request<Incoming>,
    certificate: Option<&[u8]>,
    is_known: impl FnOnce(&Caller) -> Option<Answering>,
) -> Answer {
    let service = front.service();
    if request.uri().path() == "/healthz" {
        return respond(StatusCode::OK, PLAIN, if service.is_ok() { LEADS } else { STANDS_BY });
    }
    if let Some(file) = page::file(&request) {
        let there = service.as_ref().err().and_then(|by| by.leader.as_ref());
        return there
            .and_then(|leader| redirect(leader, file.path))
            .unwrap_or_else(|| respond(StatusCode::OK, file.kind, file.text));
    }
    let token = token(&request);
    if token.is_none()
        && certificate.is_none()
        && let Ok(service) = &service
        && let Some(answer) = answer_anybody(service, &request)
    {
        return answer;
    }
    let Ok(caller) = caller(front.tokens(), token, certificate) else {
        return refused(StatusCode::UNAUTHORIZED, UNKNOWN);
    };
    let Some(_answering) = is_known(&caller) else {
        let sentence = "the broker has as many connections as it can have, and you have the most \
                        of them; close some, or try again later";
        return refused(StatusCode::SERVICE_UNAVAILABLE, sentence);
    };
    if request.method() != Method::GET && page::is_foreign(&request) {
        return refused(StatusCode::FORBIDDEN, FOREIGN);
    }
    let service = match service {
        Ok(service) => service,
        Err(stands_by) => return answer_by(&request, &caller, &stands_by),
    };
    // It may be a while until there is an answer, and another broker may lead by then.
    let is_over = front.change();
    let answered = tokio::select! {
        biased;
        answered = answer_known(&service, bodies, request, &caller) => answered,
        () = is_over => Err(No::new(Kind::Away, String::new())),
    };
    if let Err(stands_by) = front.service() {
        return refused(StatusCode::SERVICE_UNAVAILABLE, &stands_by.to_string());
    }
    answered.unwrap_or_else(|no| {
        let status = match no.kind {
            Kind::Malformed => StatusCode::BAD_REQUEST,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::Unavailable => StatusCode::CONFLICT,
            Kind::Busy => StatusCode::TOO_MANY_REQUESTS,
            Kind::Away => StatusCode::SERVICE_UNAVAILABLE,
        };
        tracing::debug!(owner = %caller.owner, role = %caller.role, %status, %no, "refused");
        refused(status, &no.sentence)
    })
}

/// What a broker says that stands by: its metrics, and that another one is to be asked.
fn answer_by(request: &Request<Incoming>, caller: &Caller, stands_by: &StandsBy) -> Answer {
    if request.method() == Method::GET
        && request.uri().path() == "/metrics"
        && caller.may_look().is_ok()
    {
        return respond(StatusCode::OK, OPENMETRICS, metrics::of_one_that_stands_by());
    }
    refused(StatusCode::SERVICE_UNAVAILABLE, &stands_by.to_string())
}

/// Sends a browser to the broker that leads.
fn redirect(leader: &str, path: &str) -> Option<Answer> {
    let mut answer = respond(StatusCode::TEMPORARY_REDIRECT, PLAIN, "");
    let there = HeaderValue::try_from(format!("{leader}{path}")).ok()?;
    answer.headers_mut().insert(LOCATION, there);
    Some(answer)
}

/// What a broker with an open view says to those who show nothing. They have a stranger's place.
fn answer_anybody(service: &Service, request: &Request<Incoming>) -> Option<Answer> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/pool") => {
            let page = service.open_pool(&told(request).ok()?.unwrap_or_default())?;
            Some(respond(StatusCode::OK, JSON, page))
        }
        (&Method::GET, "/v1/history") => json(&service.open_history(span(request))?).ok(),
        _ => None,
    }
}

fn token(request: &Request<Incoming>) -> Option<&str> {
    request.headers().get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

async fn answer_known(
    service: &Service,
    bodies: &Bodies,
    request: Request<Incoming>,
    caller: &Caller,
) -> Result<Answer, No> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let number = |text: &str| {
        text.parse::<u64>().map_err(|_| No::new(Kind::NotFound, "that is no number".to_owned()))
    };
    let lease = |text: &str| number(text).map(LeaseNumber);
    match (request.method(), parts.as_slice()) {
        (&Method::POST, ["v1", "beat"]) => {
            // Before it is read: others may send less.
            caller.must_be(&[Role::Server])?;
            let is_large =
                request.body().size_hint().upper().is_none_or(|upper| {
                    usize::try_from(upper).is_ok_and(|upper| upper > OF_A_SERVER)
                });
            let leases = if is_large { service.most_leases(caller) } else { 0 };
            let most = OF_A_SERVER + OF_A_LEASE * leases;
            let proof = request.headers().get(PROOF_HEADER).cloned();
            let body = bodies.whole(request, &caller.owner, most).await?;
            let beat = body.parsed()?;
            let key = proof.map(|proof| {
                let proof = proof.to_str().unwrap_or_default();
                proven(proof, body.bytes(), Timestamp::now())
            });
            let key =
                key.transpose().map_err(|wrong| No::new(Kind::Forbidden, wrong.to_string()))?;
            drop(body);
            json(&service.beat(caller, key.as_ref(), &beat).await?)
        }
        (&Method::GET, ["v1", "me"]) => json(&service.me(caller)),
        (&Method::POST, ["v1", "requests"]) => {
            let ask = bodies.read(request, &caller.owner, OF_A_CLIENT).await?;
            json(&service.ask(caller, ask).await?)
        }
        (&Method::POST, ["v1", "jobs"]) => {
            // Before it is read: others may send less.
            caller.must_be(&[Role::Scheduler, Role::Admin])?;
            let ask = bodies.read(request, &caller.owner, OF_A_JOB).await?;
            json(&service.ask_for_job(caller, ask).await?)
        }
        (&Method::GET, ["v1", "jobs", purpose]) => {
            json(&service.job(caller, &self::purpose(purpose)?).await?)
        }
        (&Method::GET, ["v1", "requests", ticket]) => {
            let wait = wait(request.uri().query().unwrap_or_default());
            json(&service.stands(caller, number(ticket)?, wait).await?)
        }
        (&Method::DELETE, ["v1", "requests", ticket]) => {
            service.withdraw(caller, number(ticket)?).await?;
            Ok(respond(StatusCode::OK, JSON, "{}"))
        }
        (&Method::GET, ["v1", "purposes", purpose]) => {
            let wait = wait(request.uri().query().unwrap_or_default());
            json(&service.stands_for(caller, &self::purpose(purpose)?, wait).await?)
        }
        (&Method::DELETE, ["v1", "purposes", purpose]) => {
            service.end_with(caller, &self::purpose(purpose)?).await?;
            Ok(respond(StatusCode::OK, JSON, "{}"))
        }
        (&Method::GET, ["v1", "leases", of]) => json(&service.lease(caller, lease(of)?).await?),
        (&Method::POST, ["v1", "leases", of, "renew"]) => {
            json(&service.renew(caller, lease(of)?).await?)
        }
        (&Method::POST, ["v1", "leases", of, "prolong"]) => {
            let prolong = bodies.read(request, &caller.owner, OF_A_CLIENT).await?;
            json(&service.prolong(caller, lease(of)?, prolong).await?)
        }
        (&Method::DELETE, ["v1", "leases", of]) => {
            service.end(caller, lease(of)?).await?;
            Ok(respond(StatusCode::OK, JSON, "{}"))
        }
        (&Method::GET, ["v1", "leases", of, "why"]) => json(&service.why(caller, lease(of)?)?),
        (&Method::DELETE, ["v1", "servers", name]) => {
            let name = name.parse::<ServerName>()?;
            service.forget(caller, &name).await?;
            Ok(respond(StatusCode::OK, JSON, "{}"))
        }
        (&Method::GET, ["v1", "pool"]) => {
            json(&service.page(caller, &told(&request)?.unwrap_or_default())?)
        }
        (&Method::GET, ["v1", "history"]) => json(&service.history(caller, span(&request))?),
        (&Method::GET, ["v1", "usage"]) => json(&service.usage(caller, told(&request)?.as_ref())?),
        (&Method::GET, ["metrics"]) => {
            let text = metrics::text(&service.pool(caller)?, Timestamp::now());
            Ok(respond(StatusCode::OK, OPENMETRICS, text))
        }
        _ => Err(No::new(Kind::NotFound, "the broker has no such thing".to_owned())),
    }
}

fn purpose(text: &str) -> Result<Purpose, No> {
    Ok(text.parse::<Purpose>()?)
}

/// How long the caller wants to be kept waiting.
fn wait(query: &str) -> Duration {
    let asked = parameter(query, "wait_ms").unwrap_or(0);
    Duration::from_millis(asked).min(LONGEST_WAIT)
}

/// How many seconds of the past the caller wants to see, and in how many pieces.
fn span<B>(request: &Request<B>) -> (u32, u32) {
    let query = request.uri().query().unwrap_or_default();
    (parameter(query, "seconds").unwrap_or(3600), parameter(query, "points").unwrap_or(360))
}

/// After what the caller wants to see a list, if not from its beginning.
fn told<T: FromStr<Err = Malformed>>(request: &Request<impl Sized>) -> Result<Option<T>, No> {
    let query = request.uri().query().unwrap_or_default();
    let told: Option<String> = parameter(query, "after");
    Ok(told.map(|text| text.parse()).transpose()?)
}

fn parameter<T: FromStr>(query: &str, name: &str) -> Option<T> {
    let value = |part: &str| part.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
    query.split('&').find_map(value)
}

fn json(what: &impl Serialize) -> Result<Answer, No> {
    let text = serde_json::to_vec(what)
        .map_err(|error| No::new(Kind::Busy, format!("the answer cannot be written: {error}")))?;
    Ok(respond(StatusCode::OK, JSON, text))
}

fn refused(status: StatusCode, sentence: &str) -> Answer {
    let text = serde_json::to_vec(&Refused { error: sentence.to_owned() }).unwrap_or_default();
    respond(status, JSON, text)
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page::protect(headers);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_kept_waiting_for_longer_than_their_ticket_lives() {
        assert_eq!(wait("wait_ms=250"), Duration::from_millis(250));
        assert_eq!(wait("x=1&wait_ms=99999999"), LONGEST_WAIT);
        for nothing in ["", "wait_ms=", "wait_ms=-1", "wait=5"] {
            assert_eq!(wait(nothing), Duration::ZERO, "{nothing}");
        }
    }
}
