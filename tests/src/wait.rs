//! Waiting for something to come about: always with a deadline, never for a fixed time.

use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};

/// Between two looks, where a tenth of a second is exact enough.
const COARSE: Duration = Duration::from_millis(100);

/// Between two looks at what is measured to the hundredth of a second.
const FINE: Duration = Duration::from_millis(5);

/// Tries again, ten times a second, until an attempt succeeds or the limit has passed.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    every(COARSE, what, limit, attempt).await
}

/// As [`until`], two hundred times a second.
pub async fn closely<T>(
    what: &str,
    limit: Duration,
    attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    every(FINE, what, limit, attempt).await
}

async fn every<T>(
    pause: Duration,
    what: &str,
    limit: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(last) if start.elapsed() >= limit => {
                return Err(Failure::Timeout {
                    what: what.to_string(),
                    limit,
                    last: Box::new(last),
                });
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
    }
}
