//! ListTransactions: all transactional ids that one may describe, or those that pass filters.

use std::collections::HashSet;

use regex::Regex;
use seawall_net::Flow;
use seawall_net::wire::messages::list_transactions_response::TransactionState;
use seawall_net::wire::messages::{ListTransactionsRequest, ListTransactionsResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::acl::{Operation, ResourceType};
use crate::txn::{Phase, Txn};

/// More than any pattern that a person writes needs.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &ListTransactionsRequest) -> ListTransactionsResponse {
    let mut response = ListTransactionsResponse::default();
    let states = request.state_filters.iter();
    let (known, unknown): (Vec<_>, Vec<_>) =
        states.partition(|state| Phase::NAMES.contains(&state.as_str()));
    response.unknown_state_filters = unknown.into_iter().cloned().collect();
    let pattern = match pattern(request) {
        Ok(pattern) => pattern,
        Err(code) => {
            response.error_code = code.code();
            return response;
        }
    };
    let filter = Filter {
        states: known.into_iter().map(|state| state.as_str()).collect(),
        any_state: request.state_filters.is_empty(),
        producers: request.producer_id_filters.iter().copied().collect(),
        longer_than_ms: request.duration_filter,
        pattern,
        now_ms: asked.broker.txns.now_ms(),
    };
    let all = asked.broker.txns.all();
    let access = asked.access();
    let is_shown =
        |id: &str| access.quietly(Operation::Describe, (ResourceType::TransactionalId, id));
    let passing = all
        .iter()
        .filter(|(id, txn)| filter.passes(id, txn) && is_shown(id));
    response.transaction_states = passing.map(|(id, txn)| row(id, txn)).collect();
    response
}

/// The whole id must match.
fn pattern(request: &ListTransactionsRequest) -> Result<Option<Regex>, ErrorCode> {
    let pattern = request.transactional_id_pattern.as_ref();
    let Some(pattern) = pattern.map(|p| p.as_str()).filter(|p| !p.is_empty()) else {
        return Ok(None);
    };
    let compiled = regex::RegexBuilder::new(&format!("^(?:{pattern})$"))
        .size_limit(PATTERN_BYTES_MAX)
        .build();
    compiled
        .map(Some)
        .map_err(|_| ErrorCode::InvalidRegularExpression)
}

struct Filter<'a> {
    states: HashSet<&'a str>,
    any_state: bool,
    producers: HashSet<i64>,
    longer_than_ms: i64,
    pattern: Option<Regex>,
    now_ms: i64,
}

impl Filter<'_> {
    fn passes(&self, id: &str, txn: &Txn) -> bool {
        let producer = txn.producer().id.get();
        let age = self.now_ms.saturating_sub(txn.started_ms);
        (self.any_state || self.states.contains(txn.phase.name()))
            && (self.producers.is_empty() || self.producers.contains(&producer))
            && (self.longer_than_ms < 0 || age > self.longer_than_ms)
            && self.pattern.as_ref().is_none_or(|p| p.is_match(id))
    }
}

fn row(id: &str, txn: &Txn) -> TransactionState {
    let mut row = TransactionState::default();
    row.transactional_id = text(id);
    row.producer_id = txn.producer().id.get();
    row.transaction_state = text(txn.phase.name());
    row
}
