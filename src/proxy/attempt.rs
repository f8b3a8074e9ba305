//! Asking one place until its answer is its last word.
//!
//! A place may be asked several times for one attempt, each time with another request: without
//! asking for usage where that is refused, without a prompt after a tool result and then without all that
//! recovery adds where that is refused, and
//! fitted to a smaller window where the conversation was too long ([`super::overflow_retry`]). Nothing of it
//! is visible but in the headers and the log. Nothing that we add may fail a request that would have
//! worked without it.

use std::time::Instant;

use http::Method;
use serde_json::Value;

use super::{
    dispatch::Dispatch,
    outgoing::cleaned,
    overflow_retry::{Guesses, Refusal},
    send::{ProviderReply, SendError},
    traced_send,
};
use crate::{
    provider::{Outgoing, Payload},
    telemetry::Operation,
    wire::edit::{Edits, Rope},
};

impl Dispatch {
    /// Asks this place.
    ///
    /// # Errors
    /// No answer began, or one broke off before it was the client's.
    pub(super) async fn attempt(&mut self) -> Result<ProviderReply, SendError> {
        let (mut without_ours, mut usage_refused) = (false, false);
        let mut asks_usage = !self.target.provider.refuses_usage(&self.target.model);
        let mut guesses = Guesses::default();
        let mut sent = loop {
            let sent = self.once(asks_usage).await?;
            let (sent, told) = self.look(sent).await?;
            let again = match told {
                Refusal::Nothing => break sent,
                Refusal::TooLong { overflow, .. } => self.refit(&overflow),
                Refusal::Wordless => self.guess(&mut guesses),
                Refusal::RefusesOurs => {
                    if !self.avoid_prompt_after_tool() {
                        without_ours = true;
                        self.without_ours();
                    }
                    true
                }
                Refusal::RefusesUsage => {
                    (asks_usage, usage_refused) = (false, true);
                    true
                }
            };
            if !again {
                break self.too_long(sent, told);
            }
        };
        let answered = sent.answer.status().is_success();
        if answered {
            if without_ours {
                self.refused_ours();
            }
            // An error may echo the request and be about something else.
            if usage_refused {
                self.target.provider.note_usage_refused(&self.target.model);
            }
            self.believe(guesses);
        }
        // A guess that did not help is no overflow.
        let healed = self.refits > 0 && answered;
        if healed || sent.too_long {
            let labels = [self.provider(), if healed { "healed" } else { "unhealed" }];
            self.app.metrics.overflows.with_label_values(&labels).inc();
        }
        if sent.too_long {
            // There is no generation at whose end it would be told.
            let app = &self.app;
            let within = app.config.store.save_timeout();
            app.replica_sync.publish(app.learnt_state(), within).await;
        }
        (sent.attempts, sent.took) = (self.calls, self.took);
        Ok(sent)
    }

    /// Sends the request once. `asks_usage`: the usage of a stream may be asked for.
    async fn once(&mut self, asks_usage: bool) -> Result<ProviderReply, SendError> {
        let (body, asked_usage) = self.edit(asks_usage);
        let outgoing = Outgoing {
            method: Method::POST,
            path: self.path.clone(),
            headers: self.headers.clone(),
            body: Payload::Whole(body),
            model: Some(self.target.model.clone()),
        };
        let (trace, provider) = (&self.notes.trace, &self.target.provider);
        let begun = Instant::now();
        let sent = traced_send::send(trace, provider, Some(Operation::Chat), outgoing).await;
        let took = begun.elapsed();
        self.took += took;
        self.calls += 1;
        let answer = sent?;
        if answer.status().is_success() {
            self.app.recent.answered(self.provider(), took);
        }
        Ok(ProviderReply {
            answer: cleaned(answer),
            asked_usage,
            attempts: self.calls,
            took: self.took,
            too_long: false,
        })
    }

    /// The body as it goes to the provider, and whether it asks for the usage of a stream where the
    /// client did not.
    fn edit(&self, asks_usage: bool) -> (Rope, bool) {
        let generation = self.generation.as_ref();
        let mut edits = generation.map_or_else(Edits::default, |it| it.edits());
        let mut asked_usage = false;
        if let Some(conversation) = &self.asked.conversation {
            if self.asked.model != self.target.model
                && let Some(field) = conversation.field("model")
            {
                let model = Value::from(self.target.model.as_str()).to_string();
                edits.replace(field.value, model);
            }
            conversation.take_out_annotations(&mut edits);
            asked_usage = asks_usage && conversation.ask_usage(&mut edits);
        }
        (edits.apply(&self.asked.bytes), asked_usage)
    }

    fn refused_ours(&mut self) {
        if let Some(generation) = &mut self.generation {
            generation.refused_ours();
        }
    }

    fn avoid_prompt_after_tool(&mut self) -> bool {
        let generation = self.generation.as_mut();
        let both = generation.zip(self.asked.conversation.as_ref());
        both.is_some_and(|(generation, conversation)| {
            generation.avoid_prompt_after_tool(conversation)
        })
    }

    pub(super) fn without_ours(&mut self) {
        if let (Some(generation), Some(conversation)) =
            (&mut self.generation, &self.asked.conversation)
        {
            generation.without_ours(conversation);
        }
    }
}
