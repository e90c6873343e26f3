//! Who may read metrics: the API server says, by a TokenReview and a SubjectAccessReview, and what it said holds for a while.
//!
//! Anybody can come with any token, so what is remembered is bounded, and so is what the API server is asked: who is not let in
//! waits, a few at a time. Who was let in needs no review for a while, and is not forgotten for the sake of others.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, Resource, api::PostParams};
use ring::digest::{SHA256, digest};
use tokio::{sync::Semaphore, time::Instant};

use super::Refusal;

/// How long a yes holds, and a no: as long as that of controller-runtime's tokens, and a moment.
const ADMITTED: Duration = Duration::from_secs(60);
const REFUSED: Duration = Duration::from_secs(10);

/// For so long after its end a yes tells who is no stranger: who scrapes all of the time is asked about again without waiting behind
/// those who guess.
const NO_STRANGER: Duration = Duration::from_secs(600);

/// How many of each are remembered.
const REMEMBERED: usize = 64;

/// How many are asked about at a time, and how long one who is not let in holds that up.
const REVIEWS: usize = 2;
const PENALTY: Duration = Duration::from_millis(250);

/// Longer than any token is.
const MAX_TOKEN_BYTES: usize = 8 << 10;

/// Who was let in, and who was not.
pub struct Access {
    client: Client,
    reviews: Semaphore,
    /// Of who was let in before, one at a time.
    renewals: Semaphore,
    known: Mutex<Known>,
}

impl Access {
    /// Nobody is known yet.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            reviews: Semaphore::new(REVIEWS),
            renewals: Semaphore::new(1),
            known: Mutex::default(),
        }
    }

    /// Whether somebody with this token may read metrics.
    pub async fn admit(&self, token: Option<&str>) -> Result<(), Refusal> {
        let token = token.filter(|token| (1..=MAX_TOKEN_BYTES).contains(&token.len()));
        let token = token.ok_or(Refusal::Unknown)?;
        let id = Id::of(token);
        if let Some(verdict) = self.remembered(&id) {
            return verdict.into();
        }
        let queue = match self.known().was_admitted(&id, Instant::now()) {
            true => &self.renewals,
            false => &self.reviews,
        };
        let turn = queue.acquire().await;
        let _turn = turn.map_err(|error| Refusal::Unanswered(error.to_string()))?;
        // Somebody with the same token may have been asked about meanwhile.
        if let Some(verdict) = self.remembered(&id) {
            return verdict.into();
        }
        let verdict = self.review(token).await;
        if let Ok(verdict) = &verdict {
            self.known().note(id, verdict.clone(), Instant::now());
        }
        // Also where there is no answer: an API server in trouble is not asked as often as anybody likes.
        if !matches!(verdict, Ok(TokenVerdict::Admitted)) {
            tokio::time::sleep(PENALTY).await;
        }
        match verdict {
            Ok(verdict) => verdict.into(),
            Err(error) => Err(Refusal::Unanswered(error.to_string())),
        }
    }

    async fn review(&self, token: &str) -> kube::Result<TokenVerdict> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let status = self.ask(&review).await?.status.unwrap_or_default();
        let user = match (status.authenticated, status.user) {
            (Some(true), Some(user)) => user,
            _ => return Ok(TokenVerdict::Unknown),
        };
        let UserInfo {
            extra,
            groups,
            uid,
            username,
        } = user;
        let name = username.clone().unwrap_or_default();
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: username,
                groups,
                uid,
                extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some("/metrics".to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let status = self.ask(&review).await?.status.unwrap_or_default();
        Ok(if status.allowed {
            TokenVerdict::Admitted
        } else {
            TokenVerdict::Forbidden(name)
        })
    }

    async fn ask<Review>(&self, review: &Review) -> kube::Result<Review>
    where
        Review: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + serde::Serialize
            + serde::de::DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let api: Api<Review> = Api::all(self.client.clone());
        api.create(&PostParams::default(), review).await
    }

    fn remembered(&self, id: &Id) -> Option<TokenVerdict> {
        self.known().of(id, Instant::now())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        // Whole after every statement.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the API server said of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TokenVerdict {
    Admitted,
    Unknown,
    Forbidden(String),
}

impl From<TokenVerdict> for Result<(), Refusal> {
    fn from(verdict: TokenVerdict) -> Self {
        match verdict {
            TokenVerdict::Admitted => Ok(()),
            TokenVerdict::Unknown => Err(Refusal::Unknown),
            TokenVerdict::Forbidden(name) => Err(Refusal::Forbidden(name)),
        }
    }
}

/// Stands for a token, which is not kept.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Id([u8; 32]);

impl Id {
    fn of(token: &str) -> Self {
        let mut id = [0; 32];
        id.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(id)
    }
}

/// What was said, each with the time until which it holds.
#[derive(Default)]
struct Known {
    admitted: HashMap<Id, (Instant, TokenVerdict)>,
    refused: HashMap<Id, (Instant, TokenVerdict)>,
}

impl Known {
    fn of(&self, id: &Id, now: Instant) -> Option<TokenVerdict> {
        let known = self.admitted.get(id).or_else(|| self.refused.get(id));
        let (until, verdict) = known?;
        (now < *until).then(|| verdict.clone())
    }

    /// Whether it was let in not long ago.
    fn was_admitted(&self, id: &Id, now: Instant) -> bool {
        let known = self.admitted.get(id);
        known.is_some_and(|(until, _)| now < *until + NO_STRANGER)
    }

    /// Where there is no more room, what would be the first to end goes.
    fn note(&mut self, id: Id, verdict: TokenVerdict, now: Instant) {
        let Self { admitted, refused } = self;
        let (book, lasts, other) = match verdict {
            TokenVerdict::Admitted => (admitted, ADMITTED, refused),
            TokenVerdict::Unknown | TokenVerdict::Forbidden(_) => (refused, REFUSED, admitted),
        };
        other.remove(&id);
        book.retain(|_, (until, verdict)| match verdict {
            TokenVerdict::Admitted => now < *until + NO_STRANGER,
            TokenVerdict::Unknown | TokenVerdict::Forbidden(_) => now < *until,
        });
        if book.len() >= REMEMBERED {
            let first = book.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(first) = first.map(|(id, _)| id.clone()) {
                book.remove(&first);
            }
        }
        book.insert(id, (now + lasts, verdict));
    }
}

#[cfg(test)]
mod tests;
