//! The two ways of a stream through the proxy: as it is, or with what is ours taken out.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Response;

use super::{
    Rounds,
    passage::{Passage, Piece},
    sieve::Sieve,
    stream::{Closing, OnEnd},
    tap::Heard,
};
use crate::wire::Body;

pub(super) enum Way {
    Plain {
        passage: Box<Passage>,
        on_end: Option<OnEnd>,
    },
    Sifted {
        sieve: Box<Sieve>,
        rounds: Option<Box<dyn Rounds>>,
    },
}

impl Way {
    pub(super) fn push(&mut self, chunk: Bytes, out: &mut VecDeque<Piece>) {
        match self {
            Self::Plain { passage, .. } => passage.push(chunk, out),
            Self::Sifted { sieve, .. } => sieve.push(chunk, out),
        }
    }

    /// The provider's stream is over. `broken`: not by its own will.
    pub(super) fn finish(&mut self, broken: bool, out: &mut VecDeque<Piece>) {
        match self {
            Self::Plain { passage, .. } => passage.finish(out),
            Self::Sifted { sieve, .. } => sieve.finish(broken, out),
        }
    }

    /// What the client got.
    pub(super) fn heard(&self) -> Heard {
        match self {
            Self::Plain { passage, .. } => passage.heard(),
            Self::Sifted { sieve, .. } => sieve.heard(),
        }
    }

    /// Whether text of ours can be put between the bytes.
    pub(super) fn legible(&self) -> bool {
        match self {
            Self::Plain { passage, .. } => passage.legible(),
            Self::Sifted { sieve, .. } => sieve.legible(),
        }
    }

    /// Whether the answer was for us alone, and another is to follow.
    pub(super) fn turns(&self) -> bool {
        matches!(self, Self::Sifted { sieve, .. } if sieve.round())
    }

    /// Whether such an answer has said all.
    pub(super) fn drained(&self) -> bool {
        matches!(self, Self::Sifted { sieve, .. } if sieve.drained())
    }

    /// The next answer; `None` where there is none that can be gone on with.
    pub(super) async fn turn(&mut self) -> Option<Response<Body>> {
        let Self::Sifted { sieve, rounds } = self else {
            return None;
        };
        let spoken = sieve.turn();
        let answer = rounds.as_mut()?.go_on(spoken).await?;
        if !answer.status().is_success() {
            let status = answer.status().as_u16();
            tracing::warn!(status, "a round of a stream was refused");
            return None;
        }
        Some(answer)
    }

    /// Tokens left out of the request that is being answered, where its rounds know.
    pub(super) fn left_out(&self) -> Option<u32> {
        match self {
            Self::Sifted {
                rounds: Some(rounds),
                ..
            } => rounds.left_out(),
            _ => None,
        }
    }

    /// What is to be done once at the end.
    pub(super) fn end(&mut self) -> Option<BoxFuture<'static, Closing>> {
        match self {
            Self::Plain { passage, on_end } => Some(on_end.take()?(passage.heard())),
            Self::Sifted { sieve, rounds } => {
                let rounds = rounds.take()?;
                let (heard, last, before) = (sieve.heard(), sieve.spoken(), sieve.before());
                Some(rounds.end(heard, last, before))
            }
        }
    }
}
