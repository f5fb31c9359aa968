"""Printed by scripts/generate-python.ts from the contract; not edited by hand.

Change contract/src and run `npm run golden`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, cast

from . import types as t
from ._call import AsyncBody, Body, Call, Options, rest, segment
from ._streams import AsyncByteStream, ByteStream


class Methods:
    """One method for each endpoint, for callers that wait."""

    def _call(self, call: Call, options: Options) -> Any:
        raise NotImplementedError

    def _stream(self, call: Call, options: Options) -> ByteStream:
        raise NotImplementedError

    def get_health(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ClusterHealth:
        """Counts and uptime of the cluster.

        `GET /health`.
        """
        call = Call(
            "GET",
            "/health",
        )
        return cast("t.ClusterHealth", self._call(call, Options(timeout, headers)))

    def get_liveness(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Whether the process answers.

        `GET /livez`.
        """
        call = Call(
            "GET",
            "/livez",
        )
        self._call(call, Options(timeout, headers))

    def get_readiness(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Whether the state backend is reachable.

        `GET /readyz`.
        """
        call = Call(
            "GET",
            "/readyz",
        )
        self._call(call, Options(timeout, headers))

    def get_metrics(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Metrics in Prometheus' text format.

        `GET /metrics`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/metrics",
        )
        return self._stream(call, Options(timeout, headers))

    def get_openapi(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> Any:
        """This description, as OpenAPI 3.1.

        `GET /openapi.json`.
        """
        call = Call(
            "GET",
            "/openapi.json",
        )
        return cast("Any", self._call(call, Options(timeout, headers)))

    def get_account(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AccountInfo:
        """The tenant's plan, ceilings, and this month's usage and cost.

        `GET /v1/account`. Needs scope usage:read or machine:read.
        """
        call = Call(
            "GET",
            "/v1/account",
        )
        return cast("t.AccountInfo", self._call(call, Options(timeout, headers)))

    def get_caller(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.CallerInfo:
        """The key's owner and permissions.

        `GET /v1/me`.
        """
        call = Call(
            "GET",
            "/v1/me",
        )
        return cast("t.CallerInfo", self._call(call, Options(timeout, headers)))

    def list_meters(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.TenantMeter]:
        """Every tenant's metered usage and cost of the current month.

        `cost` is null for a tenant that costs more than 2^53 micros, which no JSON number holds
        exactly.

        `GET /v1/billing/meters`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/billing/meters",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.TenantMeter]", self._call(call, Options(timeout, headers)))

    def get_usage(
        self,
        *,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.UsageResponse:
        """The tenant's usage over a time range; default: the current calendar month in UTC.

        `GET /v1/usage`. Needs scope usage:read or machine:read.
        """
        call = Call(
            "GET",
            "/v1/usage",
            query={"from": from_, "to": to},
        )
        return cast("t.UsageResponse", self._call(call, Options(timeout, headers)))

    def list_invoices(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.InvoiceInfo]:
        """List the tenant's invoices, one for each month since it was made.

        `GET /v1/billing/invoices`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            "/v1/billing/invoices",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id},
        )
        return cast("List[t.InvoiceInfo]", self._call(call, Options(timeout, headers)))

    def get_invoice(
        self,
        id: str,
        *,
        tenant_id: Optional[str] = None,
        as_of: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Invoice:
        """Read the invoice of a month, with its lines.

        `GET /v1/billing/invoices/{id}`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            f"/v1/billing/invoices/{segment(id)}",
            query={"tenantId": tenant_id, "asOf": as_of},
        )
        return cast("t.Invoice", self._call(call, Options(timeout, headers)))

    def list_invoice_intervals(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        month: Optional[str] = None,
        meter: Optional[Literal["uptime", "cpu", "memory", "disk", "egress", "registry"]] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.InvoiceInterval]:
        """List the intervals that an invoice was computed from, in the order in which they were
        recorded.

        1000 at once without a limit, fewer if their labels are long: the page after the last
        interval is empty. A final invoice lists them as it knew them; the sum of quantity ×
        milliseconds is exact.

        `GET /v1/billing/invoices/{id}/intervals`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            f"/v1/billing/invoices/{segment(id)}/intervals",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id, "month": month, "meter": meter},
        )
        return cast("List[t.InvoiceInterval]", self._call(call, Options(timeout, headers)))

    def list_invoice_costs(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        as_of: Optional[str] = None,
        by: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.InvoiceCost]:
        """Divide the lines of an invoice over machines, API keys or the values of a label.

        The price of a line is rounded down once. In the order of their names its groups get the
        differences of the rounded running sums, so amounts and prices of the groups add up to the
        line. Labels and keys are those of the start of each run.

        `GET /v1/billing/invoices/{id}/costs`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            f"/v1/billing/invoices/{segment(id)}/costs",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id, "asOf": as_of, "by": by},
        )
        return cast("List[t.InvoiceCost]", self._call(call, Options(timeout, headers)))

    def diff_plan(
        self,
        id: str,
        *,
        month: Optional[str] = None,
        rate_cpu_hour_micros: Optional[int] = None,
        rate_memory_gb_hour_micros: Optional[int] = None,
        rate_egress_gb_micros: Optional[int] = None,
        rate_registry_gb_hour_micros: Optional[int] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlanDiff:
        """Compare what a month cost each tenant of a plan with what it would cost at other prices.

        Changes nothing. Prices that are not given are those of the plan's newest rate, which may be
        in the future.

        `GET /v1/billing/plans/{id}/diff`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/billing/plans/{segment(id)}/diff",
            query={"month": month, "rateCpuHourMicros": rate_cpu_hour_micros, "rateMemoryGbHourMicros": rate_memory_gb_hour_micros, "rateEgressGbMicros": rate_egress_gb_micros, "rateRegistryGbHourMicros": rate_registry_gb_hour_micros},
        )
        return cast("t.PlanDiff", self._call(call, Options(timeout, headers)))

    def list_ledger(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.LedgerTransaction]:
        """List what changed the tenant's balance, in order, then what is held of its budget.

        A transaction of kind `hold` is not posted: it is what a running machine may still cost
        until it is checked again. It is there while the machine runs, if the plan's budget blocks
        or stops.

        `GET /v1/billing/ledger`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            "/v1/billing/ledger",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id},
        )
        return cast("List[t.LedgerTransaction]", self._call(call, Options(timeout, headers)))

    def post_to_ledger(
        self,
        body: t.PostToLedgerRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LedgerTransaction:
        """Give a tenant credit, or correct its balance.

        `POST /v1/billing/ledger`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/billing/ledger",
            json=body,
        )
        return cast("t.LedgerTransaction", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_api_keys(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.ApiKeyInfo]:
        """List the tenant's API keys, without their secrets.

        `GET /v1/apikeys`. Needs scope keys:write.
        """
        call = Call(
            "GET",
            "/v1/apikeys",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id},
        )
        return cast("List[t.ApiKeyInfo]", self._call(call, Options(timeout, headers)))

    def create_api_key(
        self,
        body: Optional[t.CreateApiKeyRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ApiKeyCreated:
        """Create an API key; its secret is in this answer only.

        `POST /v1/apikeys`. Needs scope keys:write.
        """
        call = Call(
            "POST",
            "/v1/apikeys",
            json=body,
        )
        return cast("t.ApiKeyCreated", self._call(call, Options(timeout, headers, idempotency_key)))

    def delete_api_key(
        self,
        id: str,
        *,
        cascade: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke an API key, immediately on every server; connections opened with it end.

        Needs a key that could have made the revoked one, or the key itself. Keys made with it stay
        valid unless `cascade` is set: their `createdBy` names it.

        `DELETE /v1/apikeys/{id}`. Needs scope keys:write.
        """
        call = Call(
            "DELETE",
            f"/v1/apikeys/{segment(id)}",
            query={"cascade": cascade},
        )
        self._call(call, Options(timeout, headers))

    def create_console_link(
        self,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ConsoleLink:
        """Make a link that signs one browser in to the console, as the calling key; valid once, for
        ten minutes.

        `POST /v1/console/links`.
        """
        call = Call(
            "POST",
            "/v1/console/links",
        )
        return cast("t.ConsoleLink", self._call(call, Options(timeout, headers, idempotency_key)))

    def open_console_link(
        self,
        body: t.OpenConsoleLinkRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ConsoleSession:
        """Sign a browser in with the token of a one-time link.

        The answer sets an `HttpOnly` cookie, which counts only in requests of the console's own
        pages.

        `POST /v1/console/sessions/link`.
        """
        call = Call(
            "POST",
            "/v1/console/sessions/link",
            json=body,
        )
        return cast("t.ConsoleSession", self._call(call, Options(timeout, headers, idempotency_key)))

    def create_console_session(
        self,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ConsoleSession:
        """Sign a browser in as the calling key.

        The answer sets an `HttpOnly` cookie, which counts only in requests of the console's own
        pages.

        `POST /v1/console/sessions`.
        """
        call = Call(
            "POST",
            "/v1/console/sessions",
        )
        return cast("t.ConsoleSession", self._call(call, Options(timeout, headers, idempotency_key)))

    def delete_console_session(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Sign the calling browser out; what it has open ends.

        `DELETE /v1/console/session`.
        """
        call = Call(
            "DELETE",
            "/v1/console/session",
        )
        self._call(call, Options(timeout, headers))

    def list_audit(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        all: Optional[bool] = None,
        key_id: Optional[str] = None,
        resource: Optional[str] = None,
        type: Optional[str] = None,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        order: Optional[Literal["asc", "desc"]] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.AuditEntry]:
        """List the calls of the tenant's keys that changed something or were refused, oldest first
        unless asked otherwise.

        100 at once without a limit. The cursor is the `sequence` of the last row that was read;
        with `all` its `at`, `tenantId` and `sequence`, joined by commas. With `all` a row may
        appear up to seconds after its time.

        `GET /v1/audit`. Needs scope audit:read.
        """
        call = Call(
            "GET",
            "/v1/audit",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id, "all": all, "keyId": key_id, "resource": resource, "type": type, "from": from_, "to": to, "order": order},
        )
        return cast("List[t.AuditEntry]", self._call(call, Options(timeout, headers)))

    def get_audit_chain(
        self,
        *,
        tenant_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AuditChain:
        """Read the end of the tenant's chain.

        `GET /v1/audit/chain`. Needs scope audit:read.
        """
        call = Call(
            "GET",
            "/v1/audit/chain",
            query={"tenantId": tenant_id},
        )
        return cast("t.AuditChain", self._call(call, Options(timeout, headers)))

    def list_machines(
        self,
        *,
        label: Optional[List[str]] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.MachineInfo]:
        """List the tenant's machines, newest first.

        `GET /v1/machines`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/machines",
            query={"label": label, "limit": limit, "cursor": cursor},
        )
        return cast("List[t.MachineInfo]", self._call(call, Options(timeout, headers)))

    def create_machine(
        self,
        body: t.CreateMachineRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Create a machine; it is `stopped` until it is started.

        `POST /v1/machines`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            "/v1/machines",
            json=body,
        )
        return cast("t.MachineInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def get_machine(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Read one machine, by id.

        `GET /v1/machines/{id}`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}",
        )
        return cast("t.MachineInfo", self._call(call, Options(timeout, headers)))

    def update_machine(
        self,
        id: str,
        body: t.UpdateMachineRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Change what may be changed of a machine; fields that are absent stay as they are.

        A move that has begun is not affected.

        `PATCH /v1/machines/{id}`. Needs scope machine:create.
        """
        call = Call(
            "PATCH",
            f"/v1/machines/{segment(id)}",
            json=body,
        )
        return cast("t.MachineInfo", self._call(call, Options(timeout, headers)))

    def delete_machine(
        self,
        id: str,
        *,
        include_usage: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineUsageResponse | None:
        """Delete a machine in any state.

        `DELETE /v1/machines/{id}`. Needs scope machine:delete.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}",
            query={"includeUsage": include_usage},
        )
        return cast("t.MachineUsageResponse | None", self._call(call, Options(timeout, headers)))

    def start_machine(
        self,
        id: str,
        *,
        detach: Optional[bool] = None,
        forkable: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Start a machine; answers when it has booted.

        `POST /v1/machines/{id}/start`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/start",
            query={"detach": detach, "forkable": forkable},
        )
        return cast("t.MachineInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def stop_machine(
        self,
        id: str,
        *,
        keep_memory: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Stop a machine; its disk is kept.

        With `keepMemory` the machine is suspended: its memory is kept on its node, and a start
        continues its processes. A machine that cannot be suspended runs on. Commands and terminals
        in it end. A stop without `keepMemory` of a suspended machine discards its memory.

        `POST /v1/machines/{id}/stop`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/stop",
            query={"keepMemory": keep_memory},
        )
        return cast("t.MachineInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def move_machine(
        self,
        id: str,
        body: Optional[t.MoveMachineRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Move a machine, with its disk, log and memory, to another node.

        Answers immediately with an operation. What happens to a running machine is its
        `disruption`. A suspended or stopped one stays so. A start meanwhile waits for the end of
        the move. A move that fails or is canceled leaves the machine where it was. The machine may
        be of any tenant.

        `POST /v1/machines/{id}/move`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/move",
            json=body,
        )
        return cast("t.Operation", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_machine_events(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        type: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.EventInfo]:
        """The machine's timeline, oldest first.

        Every command is counted, and priced at zero, in the machine's usage. Here commands that end
        close together share one line, so that the timeline of a busy machine stays readable.
        Without limit and cursor: the newest 1000.

        `GET /v1/machines/{id}/events`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/events",
            query={"limit": limit, "cursor": cursor, "type": type},
        )
        return cast("List[t.EventInfo]", self._call(call, Options(timeout, headers)))

    def get_machine_usage(
        self,
        id: str,
        *,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineUsageResponse:
        """One machine's totals and cost over a time range; readable for 30 days after deletion.

        `GET /v1/machines/{id}/usage`. Needs scope machine:read or usage:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/usage",
            query={"from": from_, "to": to},
        )
        return cast("t.MachineUsageResponse", self._call(call, Options(timeout, headers)))

    def list_machine_logs(
        self,
        id: str,
        *,
        follow: Optional[bool] = None,
        tail: Optional[int] = None,
        format: Optional[Literal["text", "json", "plain"]] = None,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        after: Optional[str] = None,
        before: Optional[str] = None,
        limit: Optional[int] = None,
        search: Optional[str] = None,
        cursors: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """The output of the machine's workload.

        The last lines that the image's command, or the machine's own, has written to stdout and
        stderr, also while the machine is stopped; the last 8 to 16 MiB are kept. With `follow`, new
        lines are sent as well, across stops and starts, until the machine is deleted. A line of the
        node's own, such as how the workload ended, begins with `flotilla: `. With `format=json` a
        line is a record: `timestamp`, `level`, `message`, `source`. `from`, `to`, `after` and
        `before` choose a part of the log, `search` its lines with a text, and `format=plain` is a
        file of lines with their times. With `cursors` each record has a `cursor`, which is a place
        before it for `after` and `before`. Then records of a `cursor` alone come first, last and at
        times between: `edge` says whether it is the `start` of the log, where earlier lines were
        removed (`trimmed`), or its present `end`; `isCut`, that lines before it were removed which
        the request asked for. Such a reader continues after the last cursor without losing or
        repeating a line.

        `GET /v1/machines/{id}/logs`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/logs",
            query={"follow": follow, "tail": tail, "format": format, "from": from_, "to": to, "after": after, "before": before, "limit": limit, "search": search, "cursors": cursors},
        )
        return self._stream(call, Options(timeout, headers))

    def create_share(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ShareInfo:
        """Make the machine's share link; an earlier one stops working.

        `POST /v1/machines/{id}/share`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/share",
        )
        return cast("t.ShareInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def remove_share(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke the machine's share link immediately.

        `DELETE /v1/machines/{id}/share`. Needs scope machine:create.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}/share",
        )
        self._call(call, Options(timeout, headers))

    def create_snapshot(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Snapshots are not implemented.

        `POST /v1/machines/{id}/snapshot`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/snapshot",
        )
        return self._stream(call, Options(timeout, headers, idempotency_key))

    def list_snapshots(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Snapshots are not implemented.

        `GET /v1/machines/{id}/snapshots`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/snapshots",
        )
        return self._stream(call, Options(timeout, headers))

    def list_events(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        machine: Optional[str] = None,
        app: Optional[str] = None,
        type: Optional[str] = None,
        order: Optional[Literal["asc", "desc"]] = None,
        changes: Optional[bool] = None,
        follow: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.TenantEvent]:
        """List the tenant's events of the last 30 days, in the order in which they were recorded.

        To follow events, ask again with the cursor of the answer (`x-cursor`), or ask once with
        `follow=true` for Server-Sent Events: each event's `id` is its cursor and its `data` the
        event as JSON, and a reader that connects again with the header `Last-Event-ID` continues
        after it; an `id` alone moves the reader past events that the filter left out. With
        `changes=true` events named `changed` come between them, without an `id`: their `data` is
        `{"kind": "operation", "id": "op-…"}` when an operation of the tenant has begun, made a step
        or ended, `app` when a rollout or an instance has, `node` when a node has another state (for
        admins), and `audit` when calls were recorded (with audit:read). A reader that connects
        again reads these things again. The last event of a stream that the server ends is an
        `error` with the reason. Events that are recorded at the same time appear together and in
        one order for all readers. With `order=desc` the newest come first, and the cursor of an
        event is followed by older ones. 100 at once without a limit.

        `GET /v1/events`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/events",
            query={"limit": limit, "cursor": cursor, "machine": machine, "app": app, "type": type, "order": order, "changes": changes, "follow": follow},
        )
        return cast("List[t.TenantEvent]", self._call(call, Options(timeout, headers)))

    def list_webhooks(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.WebhookInfo]:
        """List the tenant's webhooks.

        `GET /v1/webhooks`. Needs scope webhook:write.
        """
        call = Call(
            "GET",
            "/v1/webhooks",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.WebhookInfo]", self._call(call, Options(timeout, headers)))

    def create_webhook(
        self,
        body: t.CreateWebhookRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookCreated:
        """Create a webhook; its secret is in this answer only.

        Receives the tenant's events from now on, as `POST` with the headers `webhook-id`,
        `webhook-timestamp` and `webhook-signature`. Any 2xx accepts an event; everything else is
        tried again. docs/webhooks.md has the details.

        `POST /v1/webhooks`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            "/v1/webhooks",
            json=body,
        )
        return cast("t.WebhookCreated", self._call(call, Options(timeout, headers, idempotency_key)))

    def get_webhook(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookInfo:
        """Read one webhook.

        `GET /v1/webhooks/{id}`. Needs scope webhook:write.
        """
        call = Call(
            "GET",
            f"/v1/webhooks/{segment(id)}",
        )
        return cast("t.WebhookInfo", self._call(call, Options(timeout, headers)))

    def update_webhook(
        self,
        id: str,
        body: t.UpdateWebhookRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookInfo:
        """Change a webhook, or enable it again.

        Omitted fields keep their value; null clears description and types.

        `PATCH /v1/webhooks/{id}`. Needs scope webhook:write.
        """
        call = Call(
            "PATCH",
            f"/v1/webhooks/{segment(id)}",
            json=body,
        )
        return cast("t.WebhookInfo", self._call(call, Options(timeout, headers)))

    def delete_webhook(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a webhook, with its deliveries.

        `DELETE /v1/webhooks/{id}`. Needs scope webhook:write.
        """
        call = Call(
            "DELETE",
            f"/v1/webhooks/{segment(id)}",
        )
        self._call(call, Options(timeout, headers))

    def rotate_webhook_secret(
        self,
        id: str,
        body: Optional[t.RotateSecretRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookSecret:
        """Give a webhook a new secret; the previous one signs as well for a time.

        `POST /v1/webhooks/{id}/secret`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            f"/v1/webhooks/{segment(id)}/secret",
            json=body,
        )
        return cast("t.WebhookSecret", self._call(call, Options(timeout, headers, idempotency_key)))

    def test_webhook(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookDelivery:
        """Send an event of type webhook.test.

        The list of deliveries shows its outcome.

        `POST /v1/webhooks/{id}/test`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            f"/v1/webhooks/{segment(id)}/test",
        )
        return cast("t.WebhookDelivery", self._call(call, Options(timeout, headers, idempotency_key)))

    def replay_webhook(
        self,
        id: str,
        body: Optional[t.ReplayRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookInfo:
        """Deliver all events after a cursor again.

        `POST /v1/webhooks/{id}/replay`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            f"/v1/webhooks/{segment(id)}/replay",
            json=body,
        )
        return cast("t.WebhookInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_webhook_deliveries(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        status: Optional[Literal["pending", "delivered", "failed"]] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.WebhookDelivery]:
        """List the deliveries of a webhook, newest first.

        Those that wait, and the last 1000 that ended. 100 at once without a limit.

        `GET /v1/webhooks/{id}/deliveries`. Needs scope webhook:write.
        """
        call = Call(
            "GET",
            f"/v1/webhooks/{segment(id)}/deliveries",
            query={"limit": limit, "cursor": cursor, "status": status},
        )
        return cast("List[t.WebhookDelivery]", self._call(call, Options(timeout, headers)))

    def redeliver_webhook(
        self,
        id: str,
        event: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookDelivery:
        """Deliver one event again, immediately.

        `POST /v1/webhooks/{id}/deliveries/{event}/redeliver`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            f"/v1/webhooks/{segment(id)}/deliveries/{segment(event)}/redeliver",
        )
        return cast("t.WebhookDelivery", self._call(call, Options(timeout, headers, idempotency_key)))

    def exec(
        self,
        id: str,
        body: t.MachineCommandRequest,
        *,
        output: Optional[Literal["both", "text", "b64"]] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineExecResponse:
        """Run a command; starts the machine if it is stopped.

        With `stream: true` the answer is the stream of `exec/stream`.

        `POST /v1/machines/{id}/exec`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/exec",
            json=body,
            query={"output": output},
        )
        return cast("t.MachineExecResponse", self._call(call, Options(timeout, headers, idempotency_key)))

    def exec_stream(
        self,
        id: str,
        body: t.MachineCommandRequest,
        *,
        output: Optional[Literal["both", "text", "b64"]] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Run a command and stream its output as Server-Sent Events.

        Events `stdout` and `stderr` with text, then `exit` with `{"exitCode":N}`, or `error` with a
        sentence when it is unknown how the command ended. Each `\\n` of the text begins another
        `data:` line, and a carriage return is kept in the data. Readers that follow the standard
        end lines there: for them `output=text` turns it into a line break, and with `output=b64`
        the data is base64, byte for byte. With `Accept: application/vnd.flotilla.exec-frames` the
        stream is binary, byte for byte and without a conversion: frames of a kind (one byte), three
        zero bytes, the payload's length (four bytes, big endian) and the payload. Kinds: 0
        keep-alive, 1 stdout, 2 stderr, 3 exit with `{"exitCode":N}`, 4 error with
        `{"code":"…","message":"…"}`; skip others.

        `POST /v1/machines/{id}/exec/stream`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/exec/stream",
            json=body,
            query={"output": output},
        )
        return self._stream(call, Options(timeout, headers, idempotency_key))

    def run_code(
        self,
        id: str,
        body: t.MachineCodeRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineExecResponse:
        """Run Python or JavaScript with the image's interpreter.

        `POST /v1/machines/{id}/code`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/code",
            json=body,
        )
        return cast("t.MachineExecResponse", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_sessions(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.MachineSessionInfo]:
        """List the machine's sessions.

        `GET /v1/machines/{id}/sessions`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/sessions",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.MachineSessionInfo]", self._call(call, Options(timeout, headers)))

    def create_session(
        self,
        id: str,
        body: Optional[t.CreateMachineSessionRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineSessionInfo:
        """Create a session: a working directory and environment kept between execs.

        `POST /v1/machines/{id}/sessions`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/sessions",
            json=body,
        )
        return cast("t.MachineSessionInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def delete_session(
        self,
        id: str,
        session_id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a session.

        `DELETE /v1/machines/{id}/sessions/{session_id}`. Needs scope machine:exec.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}/sessions/{segment(session_id)}",
        )
        self._call(call, Options(timeout, headers))

    def exec_in_session(
        self,
        id: str,
        session_id: str,
        body: t.MachineCommandRequest,
        *,
        output: Optional[Literal["both", "text", "b64"]] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineExecResponse:
        """Run a command in a session.

        The working directory and exported variables after a string command are those of the next
        one. With `stream: true` the answer is the stream of `exec/stream`.

        `POST /v1/machines/{id}/sessions/{session_id}/exec`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/sessions/{segment(session_id)}/exec",
            json=body,
            query={"output": output},
        )
        return cast("t.MachineExecResponse", self._call(call, Options(timeout, headers, idempotency_key)))

    def read_file(
        self,
        id: str,
        *,
        path: Optional[str] = None,
        list: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Read a file.

        `GET /v1/machines/{id}/files`. Needs scope machine:files.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/files",
            query={"path": path, "list": list},
        )
        return self._stream(call, Options(timeout, headers))

    def write_file(
        self,
        id: str,
        body: Body,
        *,
        path: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Write a file.

        `POST /v1/machines/{id}/files`. Needs scope machine:files.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/files",
            content=body,
            query={"path": path},
        )
        self._call(call, Options(timeout, headers, idempotency_key))

    def read_file_at(
        self,
        id: str,
        path: str,
        *,
        list: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Read a file, its path in the URL.

        With `list=true` the answer is JSON, as of `readFile`. Only the bytes are declared here,
        because generated clients that know one type for an answer would read files as JSON.

        `GET /v1/machines/{id}/files/{path...}`. Needs scope machine:files.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/files/{rest(path)}",
            query={"list": list},
        )
        return self._stream(call, Options(timeout, headers))

    def put_file_at(
        self,
        id: str,
        path: str,
        body: Body,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Write a file, its path in the URL.

        `PUT /v1/machines/{id}/files/{path...}`. Needs scope machine:files.
        """
        call = Call(
            "PUT",
            f"/v1/machines/{segment(id)}/files/{rest(path)}",
            content=body,
        )
        self._call(call, Options(timeout, headers))

    def post_file_at(
        self,
        id: str,
        path: str,
        body: Body,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Write a file, its path in the URL.

        `POST /v1/machines/{id}/files/{path...}`. Needs scope machine:files.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/files/{rest(path)}",
            content=body,
        )
        self._call(call, Options(timeout, headers, idempotency_key))

    def delete_file_at(
        self,
        id: str,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Remove a file or an empty directory.

        `DELETE /v1/machines/{id}/files/{path...}`. Needs scope machine:files.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}/files/{rest(path)}",
        )
        self._call(call, Options(timeout, headers))

    def connect_get(
        self,
        id: str,
        port: int,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `GET /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
        )
        return self._stream(call, Options(timeout, headers))

    def connect_head(
        self,
        id: str,
        port: int,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `HEAD /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "HEAD",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
        )
        return self._stream(call, Options(timeout, headers))

    def connect_post(
        self,
        id: str,
        port: int,
        path: str,
        body: Body,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `POST /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
            content=body,
        )
        return self._stream(call, Options(timeout, headers, idempotency_key))

    def connect_put(
        self,
        id: str,
        port: int,
        path: str,
        body: Body,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `PUT /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "PUT",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
            content=body,
        )
        return self._stream(call, Options(timeout, headers))

    def connect_patch(
        self,
        id: str,
        port: int,
        path: str,
        body: Body,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `PATCH /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "PATCH",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
            content=body,
        )
        return self._stream(call, Options(timeout, headers))

    def connect_delete(
        self,
        id: str,
        port: int,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `DELETE /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
        )
        return self._stream(call, Options(timeout, headers))

    def connect_options(
        self,
        id: str,
        port: int,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `OPTIONS /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "OPTIONS",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
        )
        return self._stream(call, Options(timeout, headers))

    def create_connect_token(
        self,
        id: str,
        body: Optional[t.CreateConnectTokenRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ConnectToken:
        """A short-lived token that opens only the connect bridge of this machine.

        `POST /v1/machines/{id}/connect-token`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/connect-token",
            json=body,
        )
        return cast("t.ConnectToken", self._call(call, Options(timeout, headers, idempotency_key)))

    def create_branch(
        self,
        id: str,
        body: t.BranchRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Make a machine that continues as a running, branchable machine is now.

        `POST /v1/machines/{id}/branches`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/branches",
            json=body,
        )
        return cast("t.MachineInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def create_branches(
        self,
        id: str,
        body: t.BranchBatchRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MadeBranches:
        """Make many machines that continue as a running, branchable machine is now, all or none.

        `POST /v1/machines/{id}/branches/batch`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/branches/batch",
            json=body,
        )
        return cast("t.MadeBranches", self._call(call, Options(timeout, headers, idempotency_key)))

    def assign_branch(
        self,
        id: str,
        body: t.AssignRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AssignResponse:
        """Branch a machine for a task, and lease the branch.

        The branch has the files, `/run/smol-task.json` and `/run/smol-secrets.json` before the
        answer. The same `leaseId` asks for the same lease.

        `POST /v1/machines/{id}/assign`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/assign",
            json=body,
        )
        return cast("t.AssignResponse", self._call(call, Options(timeout, headers, idempotency_key)))

    def adopt_machine(
        self,
        id: str,
        body: Optional[t.AdoptRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AdoptResponse:
        """Give a branch the place of its source: name, url, ports and share link.

        The source is deleted, or kept under another name, which the answer has. Repeated, the
        answer is the same: what was done.

        `POST /v1/machines/{id}/adopt`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/adopt",
            json=body,
        )
        return cast("t.AdoptResponse", self._call(call, Options(timeout, headers, idempotency_key)))

    def get_lineage(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Lineage:
        """The machine's ancestors and branches.

        `GET /v1/machines/{id}/lineage`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/lineage",
        )
        return cast("t.Lineage", self._call(call, Options(timeout, headers)))

    def get_lease(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LeaseInfo:
        """Read a lease.

        `GET /v1/leases/{id}`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/leases/{segment(id)}",
        )
        return cast("t.LeaseInfo", self._call(call, Options(timeout, headers)))

    def heartbeat_lease(
        self,
        id: str,
        body: t.HeartbeatLeaseRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LeaseInfo:
        """Extend a lease.

        `POST /v1/leases/{id}/heartbeat`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/leases/{segment(id)}/heartbeat",
            json=body,
        )
        return cast("t.LeaseInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def complete_lease(
        self,
        id: str,
        body: t.CompleteLeaseRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LeaseInfo:
        """End a lease and delete its branch.

        `POST /v1/leases/{id}/complete`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/leases/{segment(id)}/complete",
            json=body,
        )
        return cast("t.LeaseInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def create_checkpoint(
        self,
        id: str,
        body: Optional[t.CheckpointRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.CheckpointInfo:
        """Keep an instant of a machine.

        Its disk, and while it runs its memory too, unless the request says otherwise. Answers when
        the checkpoint is made.

        `POST /v1/machines/{id}/checkpoints`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/checkpoints",
            json=body,
        )
        return cast("t.CheckpointInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_machine_checkpoints(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.CheckpointInfo]:
        """List the checkpoints of a machine, oldest first.

        `GET /v1/machines/{id}/checkpoints`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/checkpoints",
        )
        return cast("List[t.CheckpointInfo]", self._call(call, Options(timeout, headers)))

    def list_checkpoints(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.CheckpointInfo]:
        """List the tenant's checkpoints, also of machines that are gone, oldest first.

        `GET /v1/checkpoints`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/checkpoints",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.CheckpointInfo]", self._call(call, Options(timeout, headers)))

    def get_checkpoint(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.CheckpointInfo:
        """Read a checkpoint, by its id or its name.

        `GET /v1/checkpoints/{id}`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/checkpoints/{segment(id)}",
        )
        return cast("t.CheckpointInfo", self._call(call, Options(timeout, headers)))

    def delete_checkpoint(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a checkpoint; machines that were made from it stay.

        `DELETE /v1/checkpoints/{id}`. Needs scope machine:delete.
        """
        call = Call(
            "DELETE",
            f"/v1/checkpoints/{segment(id)}",
        )
        self._call(call, Options(timeout, headers))

    def restore_checkpoint(
        self,
        id: str,
        body: t.RestoreCheckpointRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Make a stopped machine that has the disk of a checkpoint.

        `POST /v1/checkpoints/{id}/restore`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/checkpoints/{segment(id)}/restore",
            json=body,
        )
        return cast("t.MachineInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def branch_checkpoint(
        self,
        id: str,
        body: t.CheckpointBranchesRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MadeBranches:
        """Make machines that continue as a checkpoint, or boot where it has no memory, all or none.

        `POST /v1/checkpoints/{id}/branches`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/checkpoints/{segment(id)}/branches",
            json=body,
        )
        return cast("t.MadeBranches", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_images(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.ImageInfo]:
        """The images that each node has cached.

        `GET /v1/images`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/images",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.ImageInfo]", self._call(call, Options(timeout, headers)))

    def pull_image(
        self,
        body: t.PullImageRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Fetch an image to one node or to all, before a machine needs it.

        Answers immediately with an operation that has a step for each node. The image's registry is
        asked what the name means now, even by a node that has the image.

        `POST /v1/images/pull`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            "/v1/images/pull",
            json=body,
        )
        return cast("t.Operation", self._call(call, Options(timeout, headers, idempotency_key)))

    def import_image(
        self,
        body: Body,
        *,
        reference: Optional[str] = None,
        node_id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ImageInfo:
        """Upload an image to a node as an archive: an OCI layout, a docker archive or a tar of a root
        file system.

        `POST /v1/images/import`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/images/import",
            content=body,
            query={"reference": reference, "nodeId": node_id},
        )
        return cast("t.ImageInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def delete_image(
        self,
        *,
        reference: Optional[str] = None,
        node_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Remove a local image from one node or from all.

        Its space is free at once, unless a machine's disk depends on it, or it was used in the last
        two minutes: then once it may be removed for others. Images of registries are removed by
        themselves when room is needed. 503 when a node does not answer: it may still have the
        image, and a repetition removes it there.

        `DELETE /v1/images`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            "/v1/images",
            query={"reference": reference, "nodeId": node_id},
        )
        self._call(call, Options(timeout, headers))

    def list_machine_images(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ListMachineImagesAnswer:
        """The image of the machine, as cached on its node.

        `GET /v1/machines/{id}/images`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/images",
        )
        return cast("t.ListMachineImagesAnswer", self._call(call, Options(timeout, headers)))

    def pull_machine_image(
        self,
        id: str,
        body: t.PullMachineImageRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ImageInfo:
        """Fetch an image to the machine's node.

        `POST /v1/machines/{id}/images/pull`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/images/pull",
            json=body,
        )
        return cast("t.ImageInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def collect_registry(
        self,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Delete from the registry what no package needs any more.

        Answers immediately with an operation. It waits until nothing is pushed, and pushes that
        begin meanwhile wait for it. The server requests one each day. Only of the registry that the
        server runs itself: another one has its own rules.

        `POST /v1/registry/collections`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/registry/collections",
        )
        return cast("t.Operation", self._call(call, Options(timeout, headers, idempotency_key)))

    def export_machine(
        self,
        id: str,
        body: Optional[t.ExportRequest] = None,
        *,
        detach: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ExportResponse | t.Operation:
        """Package a stopped machine's disk as an artifact of the registry.

        A start of the machine ends the export. An unchanged disk has the same digest, and only what
        changed is sent. Answers 202 with the operation when the export takes longer than 30 s; an
        equal request finds an export that runs.

        `POST /v1/machines/{id}/export`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/export",
            json=body,
            query={"detach": detach},
        )
        return cast("t.ExportResponse | t.Operation", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_packages(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.PackageInfo]:
        """List the tenant's packages and those of the library, by name, the newest first.

        `GET /v1/packages`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/packages",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.PackageInfo]", self._call(call, Options(timeout, headers)))

    def delete_package(
        self,
        *,
        reference: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a tag, or with a digest the package and all of its tags.

        Layers that other packages share stay. Machines that were started from it keep their disks.

        `DELETE /v1/packages`. Needs scope machine:delete.
        """
        call = Call(
            "DELETE",
            "/v1/packages",
            query={"reference": reference},
        )
        self._call(call, Options(timeout, headers))

    def list_package_retention(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.PackageRetention]:
        """List how many tags of which packages are kept.

        `GET /v1/packages/retention`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/packages/retention",
        )
        return cast("List[t.PackageRetention]", self._call(call, Options(timeout, headers)))

    def set_package_retention(
        self,
        body: t.SetPackageRetentionRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PackageRetention:
        """Keep only the newest tags of a package; older ones are deleted when a newer one is set.

        `PUT /v1/packages/retention`. Needs scope machine:delete.
        """
        call = Call(
            "PUT",
            "/v1/packages/retention",
            json=body,
        )
        return cast("t.PackageRetention", self._call(call, Options(timeout, headers)))

    def register_package(
        self,
        body: t.RegisterPackageRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.RegisterPackageAnswer:
        """Check that a package that was pushed to the registry is there.

        `POST /v1/registry/machines`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            "/v1/registry/machines",
            json=body,
        )
        return cast("t.RegisterPackageAnswer", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_apps(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.AppInfo]:
        """List the tenant's apps.

        `GET /v1/apps`.
        """
        call = Call(
            "GET",
            "/v1/apps",
        )
        return cast("List[t.AppInfo]", self._call(call, Options(timeout, headers)))

    def deploy_app(
        self,
        body: t.DeployRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Deploy an app, or update the existing one with its strategy.

        `POST /v1/apps`. Needs scope app:write.
        """
        call = Call(
            "POST",
            "/v1/apps",
            json=body,
        )
        return cast("t.AppInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def plan_deploy(
        self,
        body: t.DeployRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.DeployPlan:
        """Say what a deploy would do, without doing it.

        `POST /v1/apps/-/plan`. Needs scope app:write.
        """
        call = Call(
            "POST",
            "/v1/apps/-/plan",
            json=body,
        )
        return cast("t.DeployPlan", self._call(call, Options(timeout, headers, idempotency_key)))

    def get_app(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Read one app, by name.

        `GET /v1/apps/{name}`.
        """
        call = Call(
            "GET",
            f"/v1/apps/{segment(name)}",
        )
        return cast("t.AppInfo", self._call(call, Options(timeout, headers)))

    def destroy_app(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Destroy an app and its instances.

        `DELETE /v1/apps/{name}`. Needs scope app:write.
        """
        call = Call(
            "DELETE",
            f"/v1/apps/{segment(name)}",
        )
        self._call(call, Options(timeout, headers))

    def list_app_logs(
        self,
        name: str,
        *,
        follow: Optional[bool] = None,
        tail: Optional[int] = None,
        format: Optional[Literal["text", "json", "plain"]] = None,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        after: Optional[str] = None,
        before: Optional[str] = None,
        limit: Optional[int] = None,
        search: Optional[str] = None,
        cursors: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> ByteStream:
        """Stream the instances' log lines.

        The lines of all instances in the order of their times; with `format=json` records with
        `instanceId`. `from`, `to`, `after` and `before` choose a part of the log, `search` its
        lines with a text, and `format=plain` is a file of lines with their times. With `cursors`
        each record has a `cursor`, which is a place before it for `after` and `before`. Then
        records of a `cursor` alone come first, last and at times between: `edge` says whether it is
        the `start` of the log, where earlier lines were removed (`trimmed`), or its present `end`;
        `isCut`, that lines before it were removed which the request asked for. Such a reader
        continues after the last cursor without losing or repeating a line.

        `GET /v1/apps/{name}/logs`.
        """
        call = Call(
            "GET",
            f"/v1/apps/{segment(name)}/logs",
            query={"follow": follow, "tail": tail, "format": format, "from": from_, "to": to, "after": after, "before": before, "limit": limit, "search": search, "cursors": cursors},
        )
        return self._stream(call, Options(timeout, headers))

    def promote_app(
        self,
        name: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Promote the canary.

        `POST /v1/apps/{name}/promote`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/promote",
        )
        return cast("t.AppInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def rollback_app(
        self,
        name: str,
        body: Optional[t.RollbackRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Deploy the inputs of an earlier release again, as a new one.

        `POST /v1/apps/{name}/rollback`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/rollback",
            json=body,
        )
        return cast("t.AppInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_releases(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.ReleaseInfo]:
        """List an app's releases, newest first.

        `GET /v1/apps/{name}/releases`. Needs scope app:read or app:write.
        """
        call = Call(
            "GET",
            f"/v1/apps/{segment(name)}/releases",
        )
        return cast("List[t.ReleaseInfo]", self._call(call, Options(timeout, headers)))

    def explain_app(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppExplanation:
        """Say why an app is as it is, and what it waits for.

        `GET /v1/apps/{name}/explain`.
        """
        call = Call(
            "GET",
            f"/v1/apps/{segment(name)}/explain",
        )
        return cast("t.AppExplanation", self._call(call, Options(timeout, headers)))

    def create_app_share(
        self,
        name: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ShareInfo:
        """Make the app's share link; an earlier one stops working.

        `POST /v1/apps/{name}/share`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/share",
        )
        return cast("t.ShareInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def remove_app_share(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke the app's share link immediately.

        `DELETE /v1/apps/{name}/share`. Needs scope app:write.
        """
        call = Call(
            "DELETE",
            f"/v1/apps/{segment(name)}/share",
        )
        self._call(call, Options(timeout, headers))

    def redeploy_app(
        self,
        name: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Replace all instances with the same specification.

        `POST /v1/apps/{name}/redeploy`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/redeploy",
        )
        return cast("t.AppInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def scale_app(
        self,
        name: str,
        body: t.ScaleRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Set the number of replicas.

        `POST /v1/apps/{name}/scale`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/scale",
            json=body,
        )
        return cast("t.AppInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_nodes(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.NodeInfo]:
        """List all nodes.

        `GET /v1/nodes`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.NodeInfo]", self._call(call, Options(timeout, headers)))

    def register_node(
        self,
        body: t.RegisterNodeRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.RegisteredNode:
        """Register a node, or report that a known node is back.

        `POST /v1/nodes/register`.
        """
        call = Call(
            "POST",
            "/v1/nodes/register",
            json=body,
        )
        return cast("t.RegisteredNode", self._call(call, Options(timeout, headers, idempotency_key)))

    def revoke_node_credential(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke a node's credential; the node's next call fails.

        `DELETE /v1/nodes/{id}/credential`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/nodes/{segment(id)}/credential",
        )
        self._call(call, Options(timeout, headers))

    def decommission_node(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Remove a node that leaves the fleet for good.

        Its row, its credential and what it has reported are removed, its connections end, and join
        tokens that were made before do not admit it again. It is refused while the node has the
        disk of a machine, and names these machines, and while the node is `ready` or `draining`:
        drain it first. Deleted machines whose deletion an unreachable node has not confirmed do not
        keep it; their disks are then still on the host.

        `DELETE /v1/nodes/{id}`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/nodes/{segment(id)}",
        )
        self._call(call, Options(timeout, headers))

    def cordon_node(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.NodeInfo:
        """Place no new machines on a node.

        Machines that are on the node keep running, stop and start as before. It stays so, also
        across restarts, until the node is uncordoned.

        `POST /v1/nodes/{id}/cordon`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/cordon",
        )
        return cast("t.NodeInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def maintain_node(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.NodeInfo:
        """Expect a node to be away, because an operator works on it.

        The node is cordoned as well. Machines that are there keep running and start as before. When
        the node stops reporting, its machines say that it is under maintenance, and no warning is
        written. It stays so, also across restarts, until the node is uncordoned.

        `POST /v1/nodes/{id}/maintenance`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/maintenance",
        )
        return cast("t.NodeInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def uncordon_node(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.NodeInfo:
        """Place new machines on a node again, and end its maintenance.

        `POST /v1/nodes/{id}/uncordon`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/uncordon",
        )
        return cast("t.NodeInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def drain_node(
        self,
        id: str,
        body: Optional[t.DrainNodeRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.DrainNodeAnswer:
        """Move all machines of a node to other nodes, and start nothing more on it.

        Answers immediately; the operation shows the progress. Each machine is moved with its disk
        by an operation, two at a time: a running one is stopped, moved and started again, a stopped
        one stays stopped. A machine that no other node admits stays: its disk is kept there, and if
        it still runs after `deadlineSeconds` (600) it is stopped. The node is `drained` when no
        machine runs there; the last step says which disks it still has, and why. It is `ready`
        again when its agent registers after that.

        `POST /v1/nodes/{id}/drain`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/drain",
            json=body,
        )
        return cast("t.DrainNodeAnswer", self._call(call, Options(timeout, headers, idempotency_key)))

    def plan_drain(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.DrainPlan:
        """What a drain of the node would move and where, what would stay and why, and how long it
        would take.

        Nothing is changed or reserved, so a later drain may choose other nodes.

        `GET /v1/nodes/{id}/drain`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/nodes/{segment(id)}/drain",
        )
        return cast("t.DrainPlan", self._call(call, Options(timeout, headers)))

    def cancel_drain(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.CancelDrainAnswer:
        """End the drain of a node, so that machines start on it again.

        The node is `ready` immediately, also when it is `drained`. The drain ends within seconds,
        and with it the moves that it has begun: a machine that is being copied runs again where it
        was. Machines that have moved stay where they are.

        `DELETE /v1/nodes/{id}/drain`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/nodes/{segment(id)}/drain",
        )
        return cast("t.CancelDrainAnswer", self._call(call, Options(timeout, headers)))

    def upgrade_nodes(
        self,
        body: Optional[t.UpgradeNodesRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Restart agents of nodes as the release that is installed on their hosts, one after the
        other.

        Without `nodeIds` all that are `ready`. Machines run on, and the new agent adopts them. The
        installed program is run once before, so a broken installation ends no agent. A node is
        begun when the one before it has reported everything it has; the first that fails ends the
        operation, and the others are not touched. Nothing is installed: put the release on the
        hosts first. With `vmms` the machines of each node then get new VMMs of the program that is
        installed there, two at a time and as their `disruption` permits: `migrate` while they run,
        `restart` by a restart; with `stop` they are left and named, as are those that refuse.

        `POST /v1/nodes/upgrade`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/nodes/upgrade",
            json=body,
        )
        return cast("t.Operation", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_lost_nodes(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LostNodes:
        """The nodes that do not report, and which machines of them are, or would be, replaced.

        `GET /v1/nodes/replace-lost`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/replace-lost",
        )
        return cast("t.LostNodes", self._call(call, Options(timeout, headers)))

    def replace_lost_nodes(
        self,
        body: Optional[t.ReplaceLostNodesRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LostNodes:
        """Replace machines of nodes that do not report, although so many are silent that nothing is
        replaced by itself.

        Of all unreachable nodes that are not under maintenance, or of those that are named.
        Machines that wait in pools are deleted and made on other nodes. Machines of users are never
        replaced. When a node returns it ends what was replaced first.

        `POST /v1/nodes/replace-lost`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/nodes/replace-lost",
            json=body,
        )
        return cast("t.LostNodes", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_servers(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.ServerInfo]:
        """List the servers that run, with their versions.

        `GET /v1/nodes/servers`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/servers",
        )
        return cast("List[t.ServerInfo]", self._call(call, Options(timeout, headers)))

    def list_findings(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.FleetFinding]:
        """What each server, node and authority of the fleet needs from an operator.

        One finding with severity `ok` for each that needs nothing. It calls every node that
        reports, so it takes as long as the slowest.

        `GET /v1/nodes/findings`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/findings",
        )
        return cast("List[t.FleetFinding]", self._call(call, Options(timeout, headers)))

    def list_fleet_authorities(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.FleetAuthority]:
        """List the authorities that servers and nodes trust.

        `GET /v1/nodes/authorities`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/authorities",
        )
        return cast("List[t.FleetAuthority]", self._call(call, Options(timeout, headers)))

    def rotate_fleet_authority(
        self,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.FleetAuthority]:
        """Replace the authority that signs certificates of nodes.

        Earlier authorities stay trusted. Every node gets a certificate of the new one with its next
        heartbeat, and no connection is interrupted. When all nodes have reported since, remove the
        earlier one.

        `POST /v1/nodes/authorities`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/nodes/authorities",
        )
        return cast("List[t.FleetAuthority]", self._call(call, Options(timeout, headers, idempotency_key)))

    def remove_fleet_authority(
        self,
        fingerprint: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """End the trust in an authority that no longer signs.

        A node that has not reported since another one signs, and a join token that was made before,
        do not recognize the servers any more: they need a new token.

        `DELETE /v1/nodes/authorities/{fingerprint}`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/nodes/authorities/{segment(fingerprint)}",
        )
        self._call(call, Options(timeout, headers))

    def heartbeat_node(
        self,
        id: str,
        body: Optional[Any] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.HeartbeatNodeAnswer:
        """Report resources and the observed state of machines.

        The body is `Heartbeat` of contract/src/link/link.ts; without a body it only reports that
        the node runs.

        `POST /v1/nodes/{id}/heartbeat`.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/heartbeat",
            json=body,
        )
        return cast("t.HeartbeatNodeAnswer", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_join_tokens(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.JoinTokenInfo]:
        """List join tokens, without their secrets.

        `GET /v1/tokens`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/tokens",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.JoinTokenInfo]", self._call(call, Options(timeout, headers)))

    def create_join_token(
        self,
        body: Optional[t.CreateJoinTokenRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.JoinTokenCreated:
        """Create a join token; it is shown in this answer only.

        `POST /v1/tokens`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/tokens",
            json=body,
        )
        return cast("t.JoinTokenCreated", self._call(call, Options(timeout, headers, idempotency_key)))

    def delete_join_token(
        self,
        prefix: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke a join token.

        `DELETE /v1/tokens/{prefix}`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/tokens/{segment(prefix)}",
        )
        self._call(call, Options(timeout, headers))

    def list_loops(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ServerLoops:
        """List the loops of the server that answers, with their last runs.

        `GET /v1/loops`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/loops",
        )
        return cast("t.ServerLoops", self._call(call, Options(timeout, headers)))

    def explain_placement(
        self,
        body: t.PlacementRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlacementExplanation:
        """Explain on which node a new machine would be placed, and why not on the others.

        Nothing is created or reserved, so a later start may be placed elsewhere.

        `POST /v1/nodes/placement`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/nodes/placement",
            json=body,
        )
        return cast("t.PlacementExplanation", self._call(call, Options(timeout, headers, idempotency_key)))

    def explain_machine_placement(
        self,
        *,
        machine_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlacementExplanation:
        """Explain why a machine is on its node, or where it would be placed now.

        Of a machine of any tenant. Nothing is reserved.

        `GET /v1/nodes/placement`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/placement",
            query={"machineId": machine_id},
        )
        return cast("t.PlacementExplanation", self._call(call, Options(timeout, headers)))

    def list_operations(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.Operation]:
        """List the tenant's operations of the last 30 days, newest first.

        1000 at once without a limit.

        `GET /v1/operations`.
        """
        call = Call(
            "GET",
            "/v1/operations",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.Operation]", self._call(call, Options(timeout, headers)))

    def get_operation(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Read one operation.

        `GET /v1/operations/{id}`.
        """
        call = Call(
            "GET",
            f"/v1/operations/{segment(id)}",
        )
        return cast("t.Operation", self._call(call, Options(timeout, headers)))

    def cancel_operation(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """End an operation early; what it did is undone where that is possible.

        Answers immediately; the operation is `canceled` within seconds. One that has ended stays as
        it is, and one that cannot be undone any more succeeds.

        `POST /v1/operations/{id}/cancel`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/operations/{segment(id)}/cancel",
        )
        return cast("t.Operation", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_plans(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.PlanInfo]:
        """List all plans.

        `GET /v1/plans`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/plans",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.PlanInfo]", self._call(call, Options(timeout, headers)))

    def create_plan(
        self,
        body: t.CreatePlanRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlanInfo:
        """Create a plan; omitted values are the default plan's.

        `POST /v1/plans`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/plans",
            json=body,
        )
        return cast("t.PlanInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def get_plan(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlanInfo:
        """Read one plan.

        `GET /v1/plans/{id}`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/plans/{segment(id)}",
        )
        return cast("t.PlanInfo", self._call(call, Options(timeout, headers)))

    def update_plan(
        self,
        id: str,
        body: t.UpdatePlanRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlanInfo:
        """Change a plan's name, ceilings or budget, for all of its tenants.

        Omitted fields keep their value; of `maxEgressGb`, `maxPackageGb` and `monthlyBudgetMicros`,
        null is none. Machines that run keep running when a ceiling is lowered below what they use.

        `PATCH /v1/plans/{id}`. Needs scope admin.
        """
        call = Call(
            "PATCH",
            f"/v1/plans/{segment(id)}",
            json=body,
        )
        return cast("t.PlanInfo", self._call(call, Options(timeout, headers)))

    def list_rates(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.RateInfo]:
        """List a plan's prices, past and future, in the order of their times.

        `GET /v1/plans/{id}/rates`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/plans/{segment(id)}/rates",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.RateInfo]", self._call(call, Options(timeout, headers)))

    def create_rate(
        self,
        id: str,
        body: t.CreateRateRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.RateInfo:
        """Set a plan's prices from an instant on; what was used before keeps its price.

        `POST /v1/plans/{id}/rates`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/plans/{segment(id)}/rates",
            json=body,
        )
        return cast("t.RateInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_pools(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.PoolInfo]:
        """List the tenant's pools.

        `GET /v1/pools`. Needs scope pool:write or machine:read.
        """
        call = Call(
            "GET",
            "/v1/pools",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.PoolInfo]", self._call(call, Options(timeout, headers)))

    def create_pool(
        self,
        body: t.PoolConfig,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PoolInfo:
        """Keep machines started and waiting.

        `POST /v1/pools`. Needs scope pool:write.
        """
        call = Call(
            "POST",
            "/v1/pools",
            json=body,
        )
        return cast("t.PoolInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def delete_pool(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a pool and the machines that wait in it; claimed ones stay.

        `DELETE /v1/pools/{id}`. Needs scope pool:write.
        """
        call = Call(
            "DELETE",
            f"/v1/pools/{segment(id)}",
        )
        self._call(call, Options(timeout, headers))

    def claim_machine(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Take a waiting machine out of a pool; when none waits, start one.

        `POST /v1/pools/{id}/claim`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/pools/{segment(id)}/claim",
        )
        return cast("t.MachineInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def list_volumes(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.VolumeInfo]:
        """List volume records.

        `GET /v1/volumes`.
        """
        call = Call(
            "GET",
            "/v1/volumes",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.VolumeInfo]", self._call(call, Options(timeout, headers)))

    def create_volume(
        self,
        body: t.CreateVolumeRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.VolumeInfo:
        """Create a volume record, without storage.

        `POST /v1/volumes`.
        """
        call = Call(
            "POST",
            "/v1/volumes",
            json=body,
        )
        return cast("t.VolumeInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def get_volume(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.VolumeInfo:
        """Read a volume record.

        `GET /v1/volumes/{id}`.
        """
        call = Call(
            "GET",
            f"/v1/volumes/{segment(id)}",
        )
        return cast("t.VolumeInfo", self._call(call, Options(timeout, headers)))

    def delete_volume(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a volume record.

        `DELETE /v1/volumes/{id}`.
        """
        call = Call(
            "DELETE",
            f"/v1/volumes/{segment(id)}",
        )
        self._call(call, Options(timeout, headers))

    def list_tenants(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.TenantInfo]:
        """List all tenants.

        `GET /v1/tenants`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/tenants",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.TenantInfo]", self._call(call, Options(timeout, headers)))

    def create_tenant(
        self,
        body: t.CreateTenantRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.TenantInfo:
        """Create a tenant.

        `POST /v1/tenants`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/tenants",
            json=body,
        )
        return cast("t.TenantInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def get_tenant(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.TenantInfo:
        """Read one tenant.

        `GET /v1/tenants/{id}`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/tenants/{segment(id)}",
        )
        return cast("t.TenantInfo", self._call(call, Options(timeout, headers)))

    def update_tenant(
        self,
        id: str,
        body: t.UpdateTenantRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.TenantInfo:
        """Change a tenant's plan, status or ceilings.

        Omitted fields keep their value. null clears: the default plan, no billing id, the plan's
        ceiling.

        `PATCH /v1/tenants/{id}`. Needs scope admin.
        """
        call = Call(
            "PATCH",
            f"/v1/tenants/{segment(id)}",
            json=body,
        )
        return cast("t.TenantInfo", self._call(call, Options(timeout, headers)))

    def advance_tenant(
        self,
        id: str,
        body: t.AdvanceTenantRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.TenantInfo:
        """Move the billing time of a tenant with a test clock forward.

        Machines that run are billed for the time in between; months that end become invoices.

        `POST /v1/tenants/{id}/clock`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/tenants/{segment(id)}/clock",
            json=body,
        )
        return cast("t.TenantInfo", self._call(call, Options(timeout, headers, idempotency_key)))

    def suspend_tenant(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Suspend a tenant: all its calls are answered with 402.

        `POST /v1/tenants/{id}/suspend`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/tenants/{segment(id)}/suspend",
        )
        self._call(call, Options(timeout, headers, idempotency_key))

    def reactivate_tenant(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """End a tenant's suspension.

        `POST /v1/tenants/{id}/reactivate`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/tenants/{segment(id)}/reactivate",
        )
        self._call(call, Options(timeout, headers, idempotency_key))


class AsyncMethods:
    """One method for each endpoint, for callers that await."""

    async def _call(self, call: Call, options: Options) -> Any:
        raise NotImplementedError

    async def _stream(self, call: Call, options: Options) -> AsyncByteStream:
        raise NotImplementedError

    async def get_health(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ClusterHealth:
        """Counts and uptime of the cluster.

        `GET /health`.
        """
        call = Call(
            "GET",
            "/health",
        )
        return cast("t.ClusterHealth", await self._call(call, Options(timeout, headers)))

    async def get_liveness(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Whether the process answers.

        `GET /livez`.
        """
        call = Call(
            "GET",
            "/livez",
        )
        await self._call(call, Options(timeout, headers))

    async def get_readiness(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Whether the state backend is reachable.

        `GET /readyz`.
        """
        call = Call(
            "GET",
            "/readyz",
        )
        await self._call(call, Options(timeout, headers))

    async def get_metrics(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Metrics in Prometheus' text format.

        `GET /metrics`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/metrics",
        )
        return await self._stream(call, Options(timeout, headers))

    async def get_openapi(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> Any:
        """This description, as OpenAPI 3.1.

        `GET /openapi.json`.
        """
        call = Call(
            "GET",
            "/openapi.json",
        )
        return cast("Any", await self._call(call, Options(timeout, headers)))

    async def get_account(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AccountInfo:
        """The tenant's plan, ceilings, and this month's usage and cost.

        `GET /v1/account`. Needs scope usage:read or machine:read.
        """
        call = Call(
            "GET",
            "/v1/account",
        )
        return cast("t.AccountInfo", await self._call(call, Options(timeout, headers)))

    async def get_caller(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.CallerInfo:
        """The key's owner and permissions.

        `GET /v1/me`.
        """
        call = Call(
            "GET",
            "/v1/me",
        )
        return cast("t.CallerInfo", await self._call(call, Options(timeout, headers)))

    async def list_meters(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.TenantMeter]:
        """Every tenant's metered usage and cost of the current month.

        `cost` is null for a tenant that costs more than 2^53 micros, which no JSON number holds
        exactly.

        `GET /v1/billing/meters`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/billing/meters",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.TenantMeter]", await self._call(call, Options(timeout, headers)))

    async def get_usage(
        self,
        *,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.UsageResponse:
        """The tenant's usage over a time range; default: the current calendar month in UTC.

        `GET /v1/usage`. Needs scope usage:read or machine:read.
        """
        call = Call(
            "GET",
            "/v1/usage",
            query={"from": from_, "to": to},
        )
        return cast("t.UsageResponse", await self._call(call, Options(timeout, headers)))

    async def list_invoices(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.InvoiceInfo]:
        """List the tenant's invoices, one for each month since it was made.

        `GET /v1/billing/invoices`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            "/v1/billing/invoices",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id},
        )
        return cast("List[t.InvoiceInfo]", await self._call(call, Options(timeout, headers)))

    async def get_invoice(
        self,
        id: str,
        *,
        tenant_id: Optional[str] = None,
        as_of: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Invoice:
        """Read the invoice of a month, with its lines.

        `GET /v1/billing/invoices/{id}`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            f"/v1/billing/invoices/{segment(id)}",
            query={"tenantId": tenant_id, "asOf": as_of},
        )
        return cast("t.Invoice", await self._call(call, Options(timeout, headers)))

    async def list_invoice_intervals(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        month: Optional[str] = None,
        meter: Optional[Literal["uptime", "cpu", "memory", "disk", "egress", "registry"]] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.InvoiceInterval]:
        """List the intervals that an invoice was computed from, in the order in which they were
        recorded.

        1000 at once without a limit, fewer if their labels are long: the page after the last
        interval is empty. A final invoice lists them as it knew them; the sum of quantity ×
        milliseconds is exact.

        `GET /v1/billing/invoices/{id}/intervals`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            f"/v1/billing/invoices/{segment(id)}/intervals",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id, "month": month, "meter": meter},
        )
        return cast("List[t.InvoiceInterval]", await self._call(call, Options(timeout, headers)))

    async def list_invoice_costs(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        as_of: Optional[str] = None,
        by: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.InvoiceCost]:
        """Divide the lines of an invoice over machines, API keys or the values of a label.

        The price of a line is rounded down once. In the order of their names its groups get the
        differences of the rounded running sums, so amounts and prices of the groups add up to the
        line. Labels and keys are those of the start of each run.

        `GET /v1/billing/invoices/{id}/costs`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            f"/v1/billing/invoices/{segment(id)}/costs",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id, "asOf": as_of, "by": by},
        )
        return cast("List[t.InvoiceCost]", await self._call(call, Options(timeout, headers)))

    async def diff_plan(
        self,
        id: str,
        *,
        month: Optional[str] = None,
        rate_cpu_hour_micros: Optional[int] = None,
        rate_memory_gb_hour_micros: Optional[int] = None,
        rate_egress_gb_micros: Optional[int] = None,
        rate_registry_gb_hour_micros: Optional[int] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlanDiff:
        """Compare what a month cost each tenant of a plan with what it would cost at other prices.

        Changes nothing. Prices that are not given are those of the plan's newest rate, which may be
        in the future.

        `GET /v1/billing/plans/{id}/diff`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/billing/plans/{segment(id)}/diff",
            query={"month": month, "rateCpuHourMicros": rate_cpu_hour_micros, "rateMemoryGbHourMicros": rate_memory_gb_hour_micros, "rateEgressGbMicros": rate_egress_gb_micros, "rateRegistryGbHourMicros": rate_registry_gb_hour_micros},
        )
        return cast("t.PlanDiff", await self._call(call, Options(timeout, headers)))

    async def list_ledger(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.LedgerTransaction]:
        """List what changed the tenant's balance, in order, then what is held of its budget.

        A transaction of kind `hold` is not posted: it is what a running machine may still cost
        until it is checked again. It is there while the machine runs, if the plan's budget blocks
        or stops.

        `GET /v1/billing/ledger`. Needs scope billing:read.
        """
        call = Call(
            "GET",
            "/v1/billing/ledger",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id},
        )
        return cast("List[t.LedgerTransaction]", await self._call(call, Options(timeout, headers)))

    async def post_to_ledger(
        self,
        body: t.PostToLedgerRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LedgerTransaction:
        """Give a tenant credit, or correct its balance.

        `POST /v1/billing/ledger`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/billing/ledger",
            json=body,
        )
        return cast("t.LedgerTransaction", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_api_keys(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.ApiKeyInfo]:
        """List the tenant's API keys, without their secrets.

        `GET /v1/apikeys`. Needs scope keys:write.
        """
        call = Call(
            "GET",
            "/v1/apikeys",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id},
        )
        return cast("List[t.ApiKeyInfo]", await self._call(call, Options(timeout, headers)))

    async def create_api_key(
        self,
        body: Optional[t.CreateApiKeyRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ApiKeyCreated:
        """Create an API key; its secret is in this answer only.

        `POST /v1/apikeys`. Needs scope keys:write.
        """
        call = Call(
            "POST",
            "/v1/apikeys",
            json=body,
        )
        return cast("t.ApiKeyCreated", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def delete_api_key(
        self,
        id: str,
        *,
        cascade: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke an API key, immediately on every server; connections opened with it end.

        Needs a key that could have made the revoked one, or the key itself. Keys made with it stay
        valid unless `cascade` is set: their `createdBy` names it.

        `DELETE /v1/apikeys/{id}`. Needs scope keys:write.
        """
        call = Call(
            "DELETE",
            f"/v1/apikeys/{segment(id)}",
            query={"cascade": cascade},
        )
        await self._call(call, Options(timeout, headers))

    async def create_console_link(
        self,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ConsoleLink:
        """Make a link that signs one browser in to the console, as the calling key; valid once, for
        ten minutes.

        `POST /v1/console/links`.
        """
        call = Call(
            "POST",
            "/v1/console/links",
        )
        return cast("t.ConsoleLink", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def open_console_link(
        self,
        body: t.OpenConsoleLinkRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ConsoleSession:
        """Sign a browser in with the token of a one-time link.

        The answer sets an `HttpOnly` cookie, which counts only in requests of the console's own
        pages.

        `POST /v1/console/sessions/link`.
        """
        call = Call(
            "POST",
            "/v1/console/sessions/link",
            json=body,
        )
        return cast("t.ConsoleSession", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def create_console_session(
        self,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ConsoleSession:
        """Sign a browser in as the calling key.

        The answer sets an `HttpOnly` cookie, which counts only in requests of the console's own
        pages.

        `POST /v1/console/sessions`.
        """
        call = Call(
            "POST",
            "/v1/console/sessions",
        )
        return cast("t.ConsoleSession", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def delete_console_session(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Sign the calling browser out; what it has open ends.

        `DELETE /v1/console/session`.
        """
        call = Call(
            "DELETE",
            "/v1/console/session",
        )
        await self._call(call, Options(timeout, headers))

    async def list_audit(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        tenant_id: Optional[str] = None,
        all: Optional[bool] = None,
        key_id: Optional[str] = None,
        resource: Optional[str] = None,
        type: Optional[str] = None,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        order: Optional[Literal["asc", "desc"]] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.AuditEntry]:
        """List the calls of the tenant's keys that changed something or were refused, oldest first
        unless asked otherwise.

        100 at once without a limit. The cursor is the `sequence` of the last row that was read;
        with `all` its `at`, `tenantId` and `sequence`, joined by commas. With `all` a row may
        appear up to seconds after its time.

        `GET /v1/audit`. Needs scope audit:read.
        """
        call = Call(
            "GET",
            "/v1/audit",
            query={"limit": limit, "cursor": cursor, "tenantId": tenant_id, "all": all, "keyId": key_id, "resource": resource, "type": type, "from": from_, "to": to, "order": order},
        )
        return cast("List[t.AuditEntry]", await self._call(call, Options(timeout, headers)))

    async def get_audit_chain(
        self,
        *,
        tenant_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AuditChain:
        """Read the end of the tenant's chain.

        `GET /v1/audit/chain`. Needs scope audit:read.
        """
        call = Call(
            "GET",
            "/v1/audit/chain",
            query={"tenantId": tenant_id},
        )
        return cast("t.AuditChain", await self._call(call, Options(timeout, headers)))

    async def list_machines(
        self,
        *,
        label: Optional[List[str]] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.MachineInfo]:
        """List the tenant's machines, newest first.

        `GET /v1/machines`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/machines",
            query={"label": label, "limit": limit, "cursor": cursor},
        )
        return cast("List[t.MachineInfo]", await self._call(call, Options(timeout, headers)))

    async def create_machine(
        self,
        body: t.CreateMachineRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Create a machine; it is `stopped` until it is started.

        `POST /v1/machines`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            "/v1/machines",
            json=body,
        )
        return cast("t.MachineInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def get_machine(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Read one machine, by id.

        `GET /v1/machines/{id}`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}",
        )
        return cast("t.MachineInfo", await self._call(call, Options(timeout, headers)))

    async def update_machine(
        self,
        id: str,
        body: t.UpdateMachineRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Change what may be changed of a machine; fields that are absent stay as they are.

        A move that has begun is not affected.

        `PATCH /v1/machines/{id}`. Needs scope machine:create.
        """
        call = Call(
            "PATCH",
            f"/v1/machines/{segment(id)}",
            json=body,
        )
        return cast("t.MachineInfo", await self._call(call, Options(timeout, headers)))

    async def delete_machine(
        self,
        id: str,
        *,
        include_usage: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineUsageResponse | None:
        """Delete a machine in any state.

        `DELETE /v1/machines/{id}`. Needs scope machine:delete.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}",
            query={"includeUsage": include_usage},
        )
        return cast("t.MachineUsageResponse | None", await self._call(call, Options(timeout, headers)))

    async def start_machine(
        self,
        id: str,
        *,
        detach: Optional[bool] = None,
        forkable: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Start a machine; answers when it has booted.

        `POST /v1/machines/{id}/start`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/start",
            query={"detach": detach, "forkable": forkable},
        )
        return cast("t.MachineInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def stop_machine(
        self,
        id: str,
        *,
        keep_memory: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Stop a machine; its disk is kept.

        With `keepMemory` the machine is suspended: its memory is kept on its node, and a start
        continues its processes. A machine that cannot be suspended runs on. Commands and terminals
        in it end. A stop without `keepMemory` of a suspended machine discards its memory.

        `POST /v1/machines/{id}/stop`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/stop",
            query={"keepMemory": keep_memory},
        )
        return cast("t.MachineInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def move_machine(
        self,
        id: str,
        body: Optional[t.MoveMachineRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Move a machine, with its disk, log and memory, to another node.

        Answers immediately with an operation. What happens to a running machine is its
        `disruption`. A suspended or stopped one stays so. A start meanwhile waits for the end of
        the move. A move that fails or is canceled leaves the machine where it was. The machine may
        be of any tenant.

        `POST /v1/machines/{id}/move`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/move",
            json=body,
        )
        return cast("t.Operation", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_machine_events(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        type: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.EventInfo]:
        """The machine's timeline, oldest first.

        Every command is counted, and priced at zero, in the machine's usage. Here commands that end
        close together share one line, so that the timeline of a busy machine stays readable.
        Without limit and cursor: the newest 1000.

        `GET /v1/machines/{id}/events`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/events",
            query={"limit": limit, "cursor": cursor, "type": type},
        )
        return cast("List[t.EventInfo]", await self._call(call, Options(timeout, headers)))

    async def get_machine_usage(
        self,
        id: str,
        *,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineUsageResponse:
        """One machine's totals and cost over a time range; readable for 30 days after deletion.

        `GET /v1/machines/{id}/usage`. Needs scope machine:read or usage:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/usage",
            query={"from": from_, "to": to},
        )
        return cast("t.MachineUsageResponse", await self._call(call, Options(timeout, headers)))

    async def list_machine_logs(
        self,
        id: str,
        *,
        follow: Optional[bool] = None,
        tail: Optional[int] = None,
        format: Optional[Literal["text", "json", "plain"]] = None,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        after: Optional[str] = None,
        before: Optional[str] = None,
        limit: Optional[int] = None,
        search: Optional[str] = None,
        cursors: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """The output of the machine's workload.

        The last lines that the image's command, or the machine's own, has written to stdout and
        stderr, also while the machine is stopped; the last 8 to 16 MiB are kept. With `follow`, new
        lines are sent as well, across stops and starts, until the machine is deleted. A line of the
        node's own, such as how the workload ended, begins with `flotilla: `. With `format=json` a
        line is a record: `timestamp`, `level`, `message`, `source`. `from`, `to`, `after` and
        `before` choose a part of the log, `search` its lines with a text, and `format=plain` is a
        file of lines with their times. With `cursors` each record has a `cursor`, which is a place
        before it for `after` and `before`. Then records of a `cursor` alone come first, last and at
        times between: `edge` says whether it is the `start` of the log, where earlier lines were
        removed (`trimmed`), or its present `end`; `isCut`, that lines before it were removed which
        the request asked for. Such a reader continues after the last cursor without losing or
        repeating a line.

        `GET /v1/machines/{id}/logs`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/logs",
            query={"follow": follow, "tail": tail, "format": format, "from": from_, "to": to, "after": after, "before": before, "limit": limit, "search": search, "cursors": cursors},
        )
        return await self._stream(call, Options(timeout, headers))

    async def create_share(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ShareInfo:
        """Make the machine's share link; an earlier one stops working.

        `POST /v1/machines/{id}/share`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/share",
        )
        return cast("t.ShareInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def remove_share(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke the machine's share link immediately.

        `DELETE /v1/machines/{id}/share`. Needs scope machine:create.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}/share",
        )
        await self._call(call, Options(timeout, headers))

    async def create_snapshot(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Snapshots are not implemented.

        `POST /v1/machines/{id}/snapshot`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/snapshot",
        )
        return await self._stream(call, Options(timeout, headers, idempotency_key))

    async def list_snapshots(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Snapshots are not implemented.

        `GET /v1/machines/{id}/snapshots`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/snapshots",
        )
        return await self._stream(call, Options(timeout, headers))

    async def list_events(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        machine: Optional[str] = None,
        app: Optional[str] = None,
        type: Optional[str] = None,
        order: Optional[Literal["asc", "desc"]] = None,
        changes: Optional[bool] = None,
        follow: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.TenantEvent]:
        """List the tenant's events of the last 30 days, in the order in which they were recorded.

        To follow events, ask again with the cursor of the answer (`x-cursor`), or ask once with
        `follow=true` for Server-Sent Events: each event's `id` is its cursor and its `data` the
        event as JSON, and a reader that connects again with the header `Last-Event-ID` continues
        after it; an `id` alone moves the reader past events that the filter left out. With
        `changes=true` events named `changed` come between them, without an `id`: their `data` is
        `{"kind": "operation", "id": "op-…"}` when an operation of the tenant has begun, made a step
        or ended, `app` when a rollout or an instance has, `node` when a node has another state (for
        admins), and `audit` when calls were recorded (with audit:read). A reader that connects
        again reads these things again. The last event of a stream that the server ends is an
        `error` with the reason. Events that are recorded at the same time appear together and in
        one order for all readers. With `order=desc` the newest come first, and the cursor of an
        event is followed by older ones. 100 at once without a limit.

        `GET /v1/events`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/events",
            query={"limit": limit, "cursor": cursor, "machine": machine, "app": app, "type": type, "order": order, "changes": changes, "follow": follow},
        )
        return cast("List[t.TenantEvent]", await self._call(call, Options(timeout, headers)))

    async def list_webhooks(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.WebhookInfo]:
        """List the tenant's webhooks.

        `GET /v1/webhooks`. Needs scope webhook:write.
        """
        call = Call(
            "GET",
            "/v1/webhooks",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.WebhookInfo]", await self._call(call, Options(timeout, headers)))

    async def create_webhook(
        self,
        body: t.CreateWebhookRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookCreated:
        """Create a webhook; its secret is in this answer only.

        Receives the tenant's events from now on, as `POST` with the headers `webhook-id`,
        `webhook-timestamp` and `webhook-signature`. Any 2xx accepts an event; everything else is
        tried again. docs/webhooks.md has the details.

        `POST /v1/webhooks`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            "/v1/webhooks",
            json=body,
        )
        return cast("t.WebhookCreated", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def get_webhook(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookInfo:
        """Read one webhook.

        `GET /v1/webhooks/{id}`. Needs scope webhook:write.
        """
        call = Call(
            "GET",
            f"/v1/webhooks/{segment(id)}",
        )
        return cast("t.WebhookInfo", await self._call(call, Options(timeout, headers)))

    async def update_webhook(
        self,
        id: str,
        body: t.UpdateWebhookRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookInfo:
        """Change a webhook, or enable it again.

        Omitted fields keep their value; null clears description and types.

        `PATCH /v1/webhooks/{id}`. Needs scope webhook:write.
        """
        call = Call(
            "PATCH",
            f"/v1/webhooks/{segment(id)}",
            json=body,
        )
        return cast("t.WebhookInfo", await self._call(call, Options(timeout, headers)))

    async def delete_webhook(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a webhook, with its deliveries.

        `DELETE /v1/webhooks/{id}`. Needs scope webhook:write.
        """
        call = Call(
            "DELETE",
            f"/v1/webhooks/{segment(id)}",
        )
        await self._call(call, Options(timeout, headers))

    async def rotate_webhook_secret(
        self,
        id: str,
        body: Optional[t.RotateSecretRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookSecret:
        """Give a webhook a new secret; the previous one signs as well for a time.

        `POST /v1/webhooks/{id}/secret`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            f"/v1/webhooks/{segment(id)}/secret",
            json=body,
        )
        return cast("t.WebhookSecret", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def test_webhook(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookDelivery:
        """Send an event of type webhook.test.

        The list of deliveries shows its outcome.

        `POST /v1/webhooks/{id}/test`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            f"/v1/webhooks/{segment(id)}/test",
        )
        return cast("t.WebhookDelivery", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def replay_webhook(
        self,
        id: str,
        body: Optional[t.ReplayRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookInfo:
        """Deliver all events after a cursor again.

        `POST /v1/webhooks/{id}/replay`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            f"/v1/webhooks/{segment(id)}/replay",
            json=body,
        )
        return cast("t.WebhookInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_webhook_deliveries(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        status: Optional[Literal["pending", "delivered", "failed"]] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.WebhookDelivery]:
        """List the deliveries of a webhook, newest first.

        Those that wait, and the last 1000 that ended. 100 at once without a limit.

        `GET /v1/webhooks/{id}/deliveries`. Needs scope webhook:write.
        """
        call = Call(
            "GET",
            f"/v1/webhooks/{segment(id)}/deliveries",
            query={"limit": limit, "cursor": cursor, "status": status},
        )
        return cast("List[t.WebhookDelivery]", await self._call(call, Options(timeout, headers)))

    async def redeliver_webhook(
        self,
        id: str,
        event: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.WebhookDelivery:
        """Deliver one event again, immediately.

        `POST /v1/webhooks/{id}/deliveries/{event}/redeliver`. Needs scope webhook:write.
        """
        call = Call(
            "POST",
            f"/v1/webhooks/{segment(id)}/deliveries/{segment(event)}/redeliver",
        )
        return cast("t.WebhookDelivery", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def exec(
        self,
        id: str,
        body: t.MachineCommandRequest,
        *,
        output: Optional[Literal["both", "text", "b64"]] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineExecResponse:
        """Run a command; starts the machine if it is stopped.

        With `stream: true` the answer is the stream of `exec/stream`.

        `POST /v1/machines/{id}/exec`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/exec",
            json=body,
            query={"output": output},
        )
        return cast("t.MachineExecResponse", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def exec_stream(
        self,
        id: str,
        body: t.MachineCommandRequest,
        *,
        output: Optional[Literal["both", "text", "b64"]] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Run a command and stream its output as Server-Sent Events.

        Events `stdout` and `stderr` with text, then `exit` with `{"exitCode":N}`, or `error` with a
        sentence when it is unknown how the command ended. Each `\\n` of the text begins another
        `data:` line, and a carriage return is kept in the data. Readers that follow the standard
        end lines there: for them `output=text` turns it into a line break, and with `output=b64`
        the data is base64, byte for byte. With `Accept: application/vnd.flotilla.exec-frames` the
        stream is binary, byte for byte and without a conversion: frames of a kind (one byte), three
        zero bytes, the payload's length (four bytes, big endian) and the payload. Kinds: 0
        keep-alive, 1 stdout, 2 stderr, 3 exit with `{"exitCode":N}`, 4 error with
        `{"code":"…","message":"…"}`; skip others.

        `POST /v1/machines/{id}/exec/stream`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/exec/stream",
            json=body,
            query={"output": output},
        )
        return await self._stream(call, Options(timeout, headers, idempotency_key))

    async def run_code(
        self,
        id: str,
        body: t.MachineCodeRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineExecResponse:
        """Run Python or JavaScript with the image's interpreter.

        `POST /v1/machines/{id}/code`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/code",
            json=body,
        )
        return cast("t.MachineExecResponse", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_sessions(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.MachineSessionInfo]:
        """List the machine's sessions.

        `GET /v1/machines/{id}/sessions`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/sessions",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.MachineSessionInfo]", await self._call(call, Options(timeout, headers)))

    async def create_session(
        self,
        id: str,
        body: Optional[t.CreateMachineSessionRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineSessionInfo:
        """Create a session: a working directory and environment kept between execs.

        `POST /v1/machines/{id}/sessions`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/sessions",
            json=body,
        )
        return cast("t.MachineSessionInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def delete_session(
        self,
        id: str,
        session_id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a session.

        `DELETE /v1/machines/{id}/sessions/{session_id}`. Needs scope machine:exec.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}/sessions/{segment(session_id)}",
        )
        await self._call(call, Options(timeout, headers))

    async def exec_in_session(
        self,
        id: str,
        session_id: str,
        body: t.MachineCommandRequest,
        *,
        output: Optional[Literal["both", "text", "b64"]] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineExecResponse:
        """Run a command in a session.

        The working directory and exported variables after a string command are those of the next
        one. With `stream: true` the answer is the stream of `exec/stream`.

        `POST /v1/machines/{id}/sessions/{session_id}/exec`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/sessions/{segment(session_id)}/exec",
            json=body,
            query={"output": output},
        )
        return cast("t.MachineExecResponse", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def read_file(
        self,
        id: str,
        *,
        path: Optional[str] = None,
        list: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Read a file.

        `GET /v1/machines/{id}/files`. Needs scope machine:files.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/files",
            query={"path": path, "list": list},
        )
        return await self._stream(call, Options(timeout, headers))

    async def write_file(
        self,
        id: str,
        body: AsyncBody,
        *,
        path: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Write a file.

        `POST /v1/machines/{id}/files`. Needs scope machine:files.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/files",
            content=body,
            query={"path": path},
        )
        await self._call(call, Options(timeout, headers, idempotency_key))

    async def read_file_at(
        self,
        id: str,
        path: str,
        *,
        list: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Read a file, its path in the URL.

        With `list=true` the answer is JSON, as of `readFile`. Only the bytes are declared here,
        because generated clients that know one type for an answer would read files as JSON.

        `GET /v1/machines/{id}/files/{path...}`. Needs scope machine:files.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/files/{rest(path)}",
            query={"list": list},
        )
        return await self._stream(call, Options(timeout, headers))

    async def put_file_at(
        self,
        id: str,
        path: str,
        body: AsyncBody,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Write a file, its path in the URL.

        `PUT /v1/machines/{id}/files/{path...}`. Needs scope machine:files.
        """
        call = Call(
            "PUT",
            f"/v1/machines/{segment(id)}/files/{rest(path)}",
            content=body,
        )
        await self._call(call, Options(timeout, headers))

    async def post_file_at(
        self,
        id: str,
        path: str,
        body: AsyncBody,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Write a file, its path in the URL.

        `POST /v1/machines/{id}/files/{path...}`. Needs scope machine:files.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/files/{rest(path)}",
            content=body,
        )
        await self._call(call, Options(timeout, headers, idempotency_key))

    async def delete_file_at(
        self,
        id: str,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Remove a file or an empty directory.

        `DELETE /v1/machines/{id}/files/{path...}`. Needs scope machine:files.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}/files/{rest(path)}",
        )
        await self._call(call, Options(timeout, headers))

    async def connect_get(
        self,
        id: str,
        port: int,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `GET /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
        )
        return await self._stream(call, Options(timeout, headers))

    async def connect_head(
        self,
        id: str,
        port: int,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `HEAD /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "HEAD",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
        )
        return await self._stream(call, Options(timeout, headers))

    async def connect_post(
        self,
        id: str,
        port: int,
        path: str,
        body: AsyncBody,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `POST /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
            content=body,
        )
        return await self._stream(call, Options(timeout, headers, idempotency_key))

    async def connect_put(
        self,
        id: str,
        port: int,
        path: str,
        body: AsyncBody,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `PUT /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "PUT",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
            content=body,
        )
        return await self._stream(call, Options(timeout, headers))

    async def connect_patch(
        self,
        id: str,
        port: int,
        path: str,
        body: AsyncBody,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `PATCH /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "PATCH",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
            content=body,
        )
        return await self._stream(call, Options(timeout, headers))

    async def connect_delete(
        self,
        id: str,
        port: int,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `DELETE /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "DELETE",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
        )
        return await self._stream(call, Options(timeout, headers))

    async def connect_options(
        self,
        id: str,
        port: int,
        path: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Forward a request to a published port; the guest's answer is passed through.

        The query and the body are forwarded unchanged, and so is the answer, including its status.
        A WebSocket handshake opens a WebSocket with the guest; only then may the key be in the
        query, as `access_token`.

        `OPTIONS /v1/machines/{id}/connect/{port}/{path...}`. Needs scope machine:exec.
        """
        call = Call(
            "OPTIONS",
            f"/v1/machines/{segment(id)}/connect/{segment(port)}/{rest(path)}",
        )
        return await self._stream(call, Options(timeout, headers))

    async def create_connect_token(
        self,
        id: str,
        body: Optional[t.CreateConnectTokenRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ConnectToken:
        """A short-lived token that opens only the connect bridge of this machine.

        `POST /v1/machines/{id}/connect-token`. Needs scope machine:exec.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/connect-token",
            json=body,
        )
        return cast("t.ConnectToken", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def create_branch(
        self,
        id: str,
        body: t.BranchRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Make a machine that continues as a running, branchable machine is now.

        `POST /v1/machines/{id}/branches`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/branches",
            json=body,
        )
        return cast("t.MachineInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def create_branches(
        self,
        id: str,
        body: t.BranchBatchRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MadeBranches:
        """Make many machines that continue as a running, branchable machine is now, all or none.

        `POST /v1/machines/{id}/branches/batch`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/branches/batch",
            json=body,
        )
        return cast("t.MadeBranches", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def assign_branch(
        self,
        id: str,
        body: t.AssignRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AssignResponse:
        """Branch a machine for a task, and lease the branch.

        The branch has the files, `/run/smol-task.json` and `/run/smol-secrets.json` before the
        answer. The same `leaseId` asks for the same lease.

        `POST /v1/machines/{id}/assign`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/assign",
            json=body,
        )
        return cast("t.AssignResponse", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def adopt_machine(
        self,
        id: str,
        body: Optional[t.AdoptRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AdoptResponse:
        """Give a branch the place of its source: name, url, ports and share link.

        The source is deleted, or kept under another name, which the answer has. Repeated, the
        answer is the same: what was done.

        `POST /v1/machines/{id}/adopt`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/adopt",
            json=body,
        )
        return cast("t.AdoptResponse", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def get_lineage(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Lineage:
        """The machine's ancestors and branches.

        `GET /v1/machines/{id}/lineage`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/lineage",
        )
        return cast("t.Lineage", await self._call(call, Options(timeout, headers)))

    async def get_lease(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LeaseInfo:
        """Read a lease.

        `GET /v1/leases/{id}`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/leases/{segment(id)}",
        )
        return cast("t.LeaseInfo", await self._call(call, Options(timeout, headers)))

    async def heartbeat_lease(
        self,
        id: str,
        body: t.HeartbeatLeaseRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LeaseInfo:
        """Extend a lease.

        `POST /v1/leases/{id}/heartbeat`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/leases/{segment(id)}/heartbeat",
            json=body,
        )
        return cast("t.LeaseInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def complete_lease(
        self,
        id: str,
        body: t.CompleteLeaseRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LeaseInfo:
        """End a lease and delete its branch.

        `POST /v1/leases/{id}/complete`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/leases/{segment(id)}/complete",
            json=body,
        )
        return cast("t.LeaseInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def create_checkpoint(
        self,
        id: str,
        body: Optional[t.CheckpointRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.CheckpointInfo:
        """Keep an instant of a machine.

        Its disk, and while it runs its memory too, unless the request says otherwise. Answers when
        the checkpoint is made.

        `POST /v1/machines/{id}/checkpoints`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/checkpoints",
            json=body,
        )
        return cast("t.CheckpointInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_machine_checkpoints(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.CheckpointInfo]:
        """List the checkpoints of a machine, oldest first.

        `GET /v1/machines/{id}/checkpoints`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/checkpoints",
        )
        return cast("List[t.CheckpointInfo]", await self._call(call, Options(timeout, headers)))

    async def list_checkpoints(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.CheckpointInfo]:
        """List the tenant's checkpoints, also of machines that are gone, oldest first.

        `GET /v1/checkpoints`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/checkpoints",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.CheckpointInfo]", await self._call(call, Options(timeout, headers)))

    async def get_checkpoint(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.CheckpointInfo:
        """Read a checkpoint, by its id or its name.

        `GET /v1/checkpoints/{id}`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/checkpoints/{segment(id)}",
        )
        return cast("t.CheckpointInfo", await self._call(call, Options(timeout, headers)))

    async def delete_checkpoint(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a checkpoint; machines that were made from it stay.

        `DELETE /v1/checkpoints/{id}`. Needs scope machine:delete.
        """
        call = Call(
            "DELETE",
            f"/v1/checkpoints/{segment(id)}",
        )
        await self._call(call, Options(timeout, headers))

    async def restore_checkpoint(
        self,
        id: str,
        body: t.RestoreCheckpointRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Make a stopped machine that has the disk of a checkpoint.

        `POST /v1/checkpoints/{id}/restore`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/checkpoints/{segment(id)}/restore",
            json=body,
        )
        return cast("t.MachineInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def branch_checkpoint(
        self,
        id: str,
        body: t.CheckpointBranchesRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MadeBranches:
        """Make machines that continue as a checkpoint, or boot where it has no memory, all or none.

        `POST /v1/checkpoints/{id}/branches`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/checkpoints/{segment(id)}/branches",
            json=body,
        )
        return cast("t.MadeBranches", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_images(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.ImageInfo]:
        """The images that each node has cached.

        `GET /v1/images`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/images",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.ImageInfo]", await self._call(call, Options(timeout, headers)))

    async def pull_image(
        self,
        body: t.PullImageRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Fetch an image to one node or to all, before a machine needs it.

        Answers immediately with an operation that has a step for each node. The image's registry is
        asked what the name means now, even by a node that has the image.

        `POST /v1/images/pull`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            "/v1/images/pull",
            json=body,
        )
        return cast("t.Operation", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def import_image(
        self,
        body: AsyncBody,
        *,
        reference: Optional[str] = None,
        node_id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ImageInfo:
        """Upload an image to a node as an archive: an OCI layout, a docker archive or a tar of a root
        file system.

        `POST /v1/images/import`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/images/import",
            content=body,
            query={"reference": reference, "nodeId": node_id},
        )
        return cast("t.ImageInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def delete_image(
        self,
        *,
        reference: Optional[str] = None,
        node_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Remove a local image from one node or from all.

        Its space is free at once, unless a machine's disk depends on it, or it was used in the last
        two minutes: then once it may be removed for others. Images of registries are removed by
        themselves when room is needed. 503 when a node does not answer: it may still have the
        image, and a repetition removes it there.

        `DELETE /v1/images`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            "/v1/images",
            query={"reference": reference, "nodeId": node_id},
        )
        await self._call(call, Options(timeout, headers))

    async def list_machine_images(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ListMachineImagesAnswer:
        """The image of the machine, as cached on its node.

        `GET /v1/machines/{id}/images`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            f"/v1/machines/{segment(id)}/images",
        )
        return cast("t.ListMachineImagesAnswer", await self._call(call, Options(timeout, headers)))

    async def pull_machine_image(
        self,
        id: str,
        body: t.PullMachineImageRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ImageInfo:
        """Fetch an image to the machine's node.

        `POST /v1/machines/{id}/images/pull`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/images/pull",
            json=body,
        )
        return cast("t.ImageInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def collect_registry(
        self,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Delete from the registry what no package needs any more.

        Answers immediately with an operation. It waits until nothing is pushed, and pushes that
        begin meanwhile wait for it. The server requests one each day. Only of the registry that the
        server runs itself: another one has its own rules.

        `POST /v1/registry/collections`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/registry/collections",
        )
        return cast("t.Operation", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def export_machine(
        self,
        id: str,
        body: Optional[t.ExportRequest] = None,
        *,
        detach: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ExportResponse | t.Operation:
        """Package a stopped machine's disk as an artifact of the registry.

        A start of the machine ends the export. An unchanged disk has the same digest, and only what
        changed is sent. Answers 202 with the operation when the export takes longer than 30 s; an
        equal request finds an export that runs.

        `POST /v1/machines/{id}/export`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/machines/{segment(id)}/export",
            json=body,
            query={"detach": detach},
        )
        return cast("t.ExportResponse | t.Operation", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_packages(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.PackageInfo]:
        """List the tenant's packages and those of the library, by name, the newest first.

        `GET /v1/packages`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/packages",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.PackageInfo]", await self._call(call, Options(timeout, headers)))

    async def delete_package(
        self,
        *,
        reference: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a tag, or with a digest the package and all of its tags.

        Layers that other packages share stay. Machines that were started from it keep their disks.

        `DELETE /v1/packages`. Needs scope machine:delete.
        """
        call = Call(
            "DELETE",
            "/v1/packages",
            query={"reference": reference},
        )
        await self._call(call, Options(timeout, headers))

    async def list_package_retention(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.PackageRetention]:
        """List how many tags of which packages are kept.

        `GET /v1/packages/retention`. Needs scope machine:read.
        """
        call = Call(
            "GET",
            "/v1/packages/retention",
        )
        return cast("List[t.PackageRetention]", await self._call(call, Options(timeout, headers)))

    async def set_package_retention(
        self,
        body: t.SetPackageRetentionRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PackageRetention:
        """Keep only the newest tags of a package; older ones are deleted when a newer one is set.

        `PUT /v1/packages/retention`. Needs scope machine:delete.
        """
        call = Call(
            "PUT",
            "/v1/packages/retention",
            json=body,
        )
        return cast("t.PackageRetention", await self._call(call, Options(timeout, headers)))

    async def register_package(
        self,
        body: t.RegisterPackageRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.RegisterPackageAnswer:
        """Check that a package that was pushed to the registry is there.

        `POST /v1/registry/machines`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            "/v1/registry/machines",
            json=body,
        )
        return cast("t.RegisterPackageAnswer", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_apps(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.AppInfo]:
        """List the tenant's apps.

        `GET /v1/apps`.
        """
        call = Call(
            "GET",
            "/v1/apps",
        )
        return cast("List[t.AppInfo]", await self._call(call, Options(timeout, headers)))

    async def deploy_app(
        self,
        body: t.DeployRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Deploy an app, or update the existing one with its strategy.

        `POST /v1/apps`. Needs scope app:write.
        """
        call = Call(
            "POST",
            "/v1/apps",
            json=body,
        )
        return cast("t.AppInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def plan_deploy(
        self,
        body: t.DeployRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.DeployPlan:
        """Say what a deploy would do, without doing it.

        `POST /v1/apps/-/plan`. Needs scope app:write.
        """
        call = Call(
            "POST",
            "/v1/apps/-/plan",
            json=body,
        )
        return cast("t.DeployPlan", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def get_app(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Read one app, by name.

        `GET /v1/apps/{name}`.
        """
        call = Call(
            "GET",
            f"/v1/apps/{segment(name)}",
        )
        return cast("t.AppInfo", await self._call(call, Options(timeout, headers)))

    async def destroy_app(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Destroy an app and its instances.

        `DELETE /v1/apps/{name}`. Needs scope app:write.
        """
        call = Call(
            "DELETE",
            f"/v1/apps/{segment(name)}",
        )
        await self._call(call, Options(timeout, headers))

    async def list_app_logs(
        self,
        name: str,
        *,
        follow: Optional[bool] = None,
        tail: Optional[int] = None,
        format: Optional[Literal["text", "json", "plain"]] = None,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        after: Optional[str] = None,
        before: Optional[str] = None,
        limit: Optional[int] = None,
        search: Optional[str] = None,
        cursors: Optional[bool] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> AsyncByteStream:
        """Stream the instances' log lines.

        The lines of all instances in the order of their times; with `format=json` records with
        `instanceId`. `from`, `to`, `after` and `before` choose a part of the log, `search` its
        lines with a text, and `format=plain` is a file of lines with their times. With `cursors`
        each record has a `cursor`, which is a place before it for `after` and `before`. Then
        records of a `cursor` alone come first, last and at times between: `edge` says whether it is
        the `start` of the log, where earlier lines were removed (`trimmed`), or its present `end`;
        `isCut`, that lines before it were removed which the request asked for. Such a reader
        continues after the last cursor without losing or repeating a line.

        `GET /v1/apps/{name}/logs`.
        """
        call = Call(
            "GET",
            f"/v1/apps/{segment(name)}/logs",
            query={"follow": follow, "tail": tail, "format": format, "from": from_, "to": to, "after": after, "before": before, "limit": limit, "search": search, "cursors": cursors},
        )
        return await self._stream(call, Options(timeout, headers))

    async def promote_app(
        self,
        name: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Promote the canary.

        `POST /v1/apps/{name}/promote`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/promote",
        )
        return cast("t.AppInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def rollback_app(
        self,
        name: str,
        body: Optional[t.RollbackRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Deploy the inputs of an earlier release again, as a new one.

        `POST /v1/apps/{name}/rollback`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/rollback",
            json=body,
        )
        return cast("t.AppInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_releases(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.ReleaseInfo]:
        """List an app's releases, newest first.

        `GET /v1/apps/{name}/releases`. Needs scope app:read or app:write.
        """
        call = Call(
            "GET",
            f"/v1/apps/{segment(name)}/releases",
        )
        return cast("List[t.ReleaseInfo]", await self._call(call, Options(timeout, headers)))

    async def explain_app(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppExplanation:
        """Say why an app is as it is, and what it waits for.

        `GET /v1/apps/{name}/explain`.
        """
        call = Call(
            "GET",
            f"/v1/apps/{segment(name)}/explain",
        )
        return cast("t.AppExplanation", await self._call(call, Options(timeout, headers)))

    async def create_app_share(
        self,
        name: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ShareInfo:
        """Make the app's share link; an earlier one stops working.

        `POST /v1/apps/{name}/share`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/share",
        )
        return cast("t.ShareInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def remove_app_share(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke the app's share link immediately.

        `DELETE /v1/apps/{name}/share`. Needs scope app:write.
        """
        call = Call(
            "DELETE",
            f"/v1/apps/{segment(name)}/share",
        )
        await self._call(call, Options(timeout, headers))

    async def redeploy_app(
        self,
        name: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Replace all instances with the same specification.

        `POST /v1/apps/{name}/redeploy`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/redeploy",
        )
        return cast("t.AppInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def scale_app(
        self,
        name: str,
        body: t.ScaleRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.AppInfo:
        """Set the number of replicas.

        `POST /v1/apps/{name}/scale`. Needs scope app:write.
        """
        call = Call(
            "POST",
            f"/v1/apps/{segment(name)}/scale",
            json=body,
        )
        return cast("t.AppInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_nodes(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.NodeInfo]:
        """List all nodes.

        `GET /v1/nodes`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.NodeInfo]", await self._call(call, Options(timeout, headers)))

    async def register_node(
        self,
        body: t.RegisterNodeRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.RegisteredNode:
        """Register a node, or report that a known node is back.

        `POST /v1/nodes/register`.
        """
        call = Call(
            "POST",
            "/v1/nodes/register",
            json=body,
        )
        return cast("t.RegisteredNode", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def revoke_node_credential(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke a node's credential; the node's next call fails.

        `DELETE /v1/nodes/{id}/credential`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/nodes/{segment(id)}/credential",
        )
        await self._call(call, Options(timeout, headers))

    async def decommission_node(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Remove a node that leaves the fleet for good.

        Its row, its credential and what it has reported are removed, its connections end, and join
        tokens that were made before do not admit it again. It is refused while the node has the
        disk of a machine, and names these machines, and while the node is `ready` or `draining`:
        drain it first. Deleted machines whose deletion an unreachable node has not confirmed do not
        keep it; their disks are then still on the host.

        `DELETE /v1/nodes/{id}`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/nodes/{segment(id)}",
        )
        await self._call(call, Options(timeout, headers))

    async def cordon_node(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.NodeInfo:
        """Place no new machines on a node.

        Machines that are on the node keep running, stop and start as before. It stays so, also
        across restarts, until the node is uncordoned.

        `POST /v1/nodes/{id}/cordon`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/cordon",
        )
        return cast("t.NodeInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def maintain_node(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.NodeInfo:
        """Expect a node to be away, because an operator works on it.

        The node is cordoned as well. Machines that are there keep running and start as before. When
        the node stops reporting, its machines say that it is under maintenance, and no warning is
        written. It stays so, also across restarts, until the node is uncordoned.

        `POST /v1/nodes/{id}/maintenance`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/maintenance",
        )
        return cast("t.NodeInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def uncordon_node(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.NodeInfo:
        """Place new machines on a node again, and end its maintenance.

        `POST /v1/nodes/{id}/uncordon`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/uncordon",
        )
        return cast("t.NodeInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def drain_node(
        self,
        id: str,
        body: Optional[t.DrainNodeRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.DrainNodeAnswer:
        """Move all machines of a node to other nodes, and start nothing more on it.

        Answers immediately; the operation shows the progress. Each machine is moved with its disk
        by an operation, two at a time: a running one is stopped, moved and started again, a stopped
        one stays stopped. A machine that no other node admits stays: its disk is kept there, and if
        it still runs after `deadlineSeconds` (600) it is stopped. The node is `drained` when no
        machine runs there; the last step says which disks it still has, and why. It is `ready`
        again when its agent registers after that.

        `POST /v1/nodes/{id}/drain`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/drain",
            json=body,
        )
        return cast("t.DrainNodeAnswer", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def plan_drain(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.DrainPlan:
        """What a drain of the node would move and where, what would stay and why, and how long it
        would take.

        Nothing is changed or reserved, so a later drain may choose other nodes.

        `GET /v1/nodes/{id}/drain`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/nodes/{segment(id)}/drain",
        )
        return cast("t.DrainPlan", await self._call(call, Options(timeout, headers)))

    async def cancel_drain(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.CancelDrainAnswer:
        """End the drain of a node, so that machines start on it again.

        The node is `ready` immediately, also when it is `drained`. The drain ends within seconds,
        and with it the moves that it has begun: a machine that is being copied runs again where it
        was. Machines that have moved stay where they are.

        `DELETE /v1/nodes/{id}/drain`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/nodes/{segment(id)}/drain",
        )
        return cast("t.CancelDrainAnswer", await self._call(call, Options(timeout, headers)))

    async def upgrade_nodes(
        self,
        body: Optional[t.UpgradeNodesRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Restart agents of nodes as the release that is installed on their hosts, one after the
        other.

        Without `nodeIds` all that are `ready`. Machines run on, and the new agent adopts them. The
        installed program is run once before, so a broken installation ends no agent. A node is
        begun when the one before it has reported everything it has; the first that fails ends the
        operation, and the others are not touched. Nothing is installed: put the release on the
        hosts first. With `vmms` the machines of each node then get new VMMs of the program that is
        installed there, two at a time and as their `disruption` permits: `migrate` while they run,
        `restart` by a restart; with `stop` they are left and named, as are those that refuse.

        `POST /v1/nodes/upgrade`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/nodes/upgrade",
            json=body,
        )
        return cast("t.Operation", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_lost_nodes(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LostNodes:
        """The nodes that do not report, and which machines of them are, or would be, replaced.

        `GET /v1/nodes/replace-lost`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/replace-lost",
        )
        return cast("t.LostNodes", await self._call(call, Options(timeout, headers)))

    async def replace_lost_nodes(
        self,
        body: Optional[t.ReplaceLostNodesRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.LostNodes:
        """Replace machines of nodes that do not report, although so many are silent that nothing is
        replaced by itself.

        Of all unreachable nodes that are not under maintenance, or of those that are named.
        Machines that wait in pools are deleted and made on other nodes. Machines of users are never
        replaced. When a node returns it ends what was replaced first.

        `POST /v1/nodes/replace-lost`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/nodes/replace-lost",
            json=body,
        )
        return cast("t.LostNodes", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_servers(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.ServerInfo]:
        """List the servers that run, with their versions.

        `GET /v1/nodes/servers`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/servers",
        )
        return cast("List[t.ServerInfo]", await self._call(call, Options(timeout, headers)))

    async def list_findings(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.FleetFinding]:
        """What each server, node and authority of the fleet needs from an operator.

        One finding with severity `ok` for each that needs nothing. It calls every node that
        reports, so it takes as long as the slowest.

        `GET /v1/nodes/findings`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/findings",
        )
        return cast("List[t.FleetFinding]", await self._call(call, Options(timeout, headers)))

    async def list_fleet_authorities(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.FleetAuthority]:
        """List the authorities that servers and nodes trust.

        `GET /v1/nodes/authorities`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/authorities",
        )
        return cast("List[t.FleetAuthority]", await self._call(call, Options(timeout, headers)))

    async def rotate_fleet_authority(
        self,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.FleetAuthority]:
        """Replace the authority that signs certificates of nodes.

        Earlier authorities stay trusted. Every node gets a certificate of the new one with its next
        heartbeat, and no connection is interrupted. When all nodes have reported since, remove the
        earlier one.

        `POST /v1/nodes/authorities`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/nodes/authorities",
        )
        return cast("List[t.FleetAuthority]", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def remove_fleet_authority(
        self,
        fingerprint: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """End the trust in an authority that no longer signs.

        A node that has not reported since another one signs, and a join token that was made before,
        do not recognize the servers any more: they need a new token.

        `DELETE /v1/nodes/authorities/{fingerprint}`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/nodes/authorities/{segment(fingerprint)}",
        )
        await self._call(call, Options(timeout, headers))

    async def heartbeat_node(
        self,
        id: str,
        body: Optional[Any] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.HeartbeatNodeAnswer:
        """Report resources and the observed state of machines.

        The body is `Heartbeat` of contract/src/link/link.ts; without a body it only reports that
        the node runs.

        `POST /v1/nodes/{id}/heartbeat`.
        """
        call = Call(
            "POST",
            f"/v1/nodes/{segment(id)}/heartbeat",
            json=body,
        )
        return cast("t.HeartbeatNodeAnswer", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_join_tokens(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.JoinTokenInfo]:
        """List join tokens, without their secrets.

        `GET /v1/tokens`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/tokens",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.JoinTokenInfo]", await self._call(call, Options(timeout, headers)))

    async def create_join_token(
        self,
        body: Optional[t.CreateJoinTokenRequest] = None,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.JoinTokenCreated:
        """Create a join token; it is shown in this answer only.

        `POST /v1/tokens`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/tokens",
            json=body,
        )
        return cast("t.JoinTokenCreated", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def delete_join_token(
        self,
        prefix: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Revoke a join token.

        `DELETE /v1/tokens/{prefix}`. Needs scope admin.
        """
        call = Call(
            "DELETE",
            f"/v1/tokens/{segment(prefix)}",
        )
        await self._call(call, Options(timeout, headers))

    async def list_loops(
        self,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.ServerLoops:
        """List the loops of the server that answers, with their last runs.

        `GET /v1/loops`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/loops",
        )
        return cast("t.ServerLoops", await self._call(call, Options(timeout, headers)))

    async def explain_placement(
        self,
        body: t.PlacementRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlacementExplanation:
        """Explain on which node a new machine would be placed, and why not on the others.

        Nothing is created or reserved, so a later start may be placed elsewhere.

        `POST /v1/nodes/placement`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/nodes/placement",
            json=body,
        )
        return cast("t.PlacementExplanation", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def explain_machine_placement(
        self,
        *,
        machine_id: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlacementExplanation:
        """Explain why a machine is on its node, or where it would be placed now.

        Of a machine of any tenant. Nothing is reserved.

        `GET /v1/nodes/placement`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/nodes/placement",
            query={"machineId": machine_id},
        )
        return cast("t.PlacementExplanation", await self._call(call, Options(timeout, headers)))

    async def list_operations(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.Operation]:
        """List the tenant's operations of the last 30 days, newest first.

        1000 at once without a limit.

        `GET /v1/operations`.
        """
        call = Call(
            "GET",
            "/v1/operations",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.Operation]", await self._call(call, Options(timeout, headers)))

    async def get_operation(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """Read one operation.

        `GET /v1/operations/{id}`.
        """
        call = Call(
            "GET",
            f"/v1/operations/{segment(id)}",
        )
        return cast("t.Operation", await self._call(call, Options(timeout, headers)))

    async def cancel_operation(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.Operation:
        """End an operation early; what it did is undone where that is possible.

        Answers immediately; the operation is `canceled` within seconds. One that has ended stays as
        it is, and one that cannot be undone any more succeeds.

        `POST /v1/operations/{id}/cancel`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/operations/{segment(id)}/cancel",
        )
        return cast("t.Operation", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_plans(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.PlanInfo]:
        """List all plans.

        `GET /v1/plans`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/plans",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.PlanInfo]", await self._call(call, Options(timeout, headers)))

    async def create_plan(
        self,
        body: t.CreatePlanRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlanInfo:
        """Create a plan; omitted values are the default plan's.

        `POST /v1/plans`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/plans",
            json=body,
        )
        return cast("t.PlanInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def get_plan(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlanInfo:
        """Read one plan.

        `GET /v1/plans/{id}`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/plans/{segment(id)}",
        )
        return cast("t.PlanInfo", await self._call(call, Options(timeout, headers)))

    async def update_plan(
        self,
        id: str,
        body: t.UpdatePlanRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PlanInfo:
        """Change a plan's name, ceilings or budget, for all of its tenants.

        Omitted fields keep their value; of `maxEgressGb`, `maxPackageGb` and `monthlyBudgetMicros`,
        null is none. Machines that run keep running when a ceiling is lowered below what they use.

        `PATCH /v1/plans/{id}`. Needs scope admin.
        """
        call = Call(
            "PATCH",
            f"/v1/plans/{segment(id)}",
            json=body,
        )
        return cast("t.PlanInfo", await self._call(call, Options(timeout, headers)))

    async def list_rates(
        self,
        id: str,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.RateInfo]:
        """List a plan's prices, past and future, in the order of their times.

        `GET /v1/plans/{id}/rates`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/plans/{segment(id)}/rates",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.RateInfo]", await self._call(call, Options(timeout, headers)))

    async def create_rate(
        self,
        id: str,
        body: t.CreateRateRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.RateInfo:
        """Set a plan's prices from an instant on; what was used before keeps its price.

        `POST /v1/plans/{id}/rates`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/plans/{segment(id)}/rates",
            json=body,
        )
        return cast("t.RateInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_pools(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.PoolInfo]:
        """List the tenant's pools.

        `GET /v1/pools`. Needs scope pool:write or machine:read.
        """
        call = Call(
            "GET",
            "/v1/pools",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.PoolInfo]", await self._call(call, Options(timeout, headers)))

    async def create_pool(
        self,
        body: t.PoolConfig,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.PoolInfo:
        """Keep machines started and waiting.

        `POST /v1/pools`. Needs scope pool:write.
        """
        call = Call(
            "POST",
            "/v1/pools",
            json=body,
        )
        return cast("t.PoolInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def delete_pool(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a pool and the machines that wait in it; claimed ones stay.

        `DELETE /v1/pools/{id}`. Needs scope pool:write.
        """
        call = Call(
            "DELETE",
            f"/v1/pools/{segment(id)}",
        )
        await self._call(call, Options(timeout, headers))

    async def claim_machine(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.MachineInfo:
        """Take a waiting machine out of a pool; when none waits, start one.

        `POST /v1/pools/{id}/claim`. Needs scope machine:create.
        """
        call = Call(
            "POST",
            f"/v1/pools/{segment(id)}/claim",
        )
        return cast("t.MachineInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def list_volumes(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.VolumeInfo]:
        """List volume records.

        `GET /v1/volumes`.
        """
        call = Call(
            "GET",
            "/v1/volumes",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.VolumeInfo]", await self._call(call, Options(timeout, headers)))

    async def create_volume(
        self,
        body: t.CreateVolumeRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.VolumeInfo:
        """Create a volume record, without storage.

        `POST /v1/volumes`.
        """
        call = Call(
            "POST",
            "/v1/volumes",
            json=body,
        )
        return cast("t.VolumeInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def get_volume(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.VolumeInfo:
        """Read a volume record.

        `GET /v1/volumes/{id}`.
        """
        call = Call(
            "GET",
            f"/v1/volumes/{segment(id)}",
        )
        return cast("t.VolumeInfo", await self._call(call, Options(timeout, headers)))

    async def delete_volume(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Delete a volume record.

        `DELETE /v1/volumes/{id}`.
        """
        call = Call(
            "DELETE",
            f"/v1/volumes/{segment(id)}",
        )
        await self._call(call, Options(timeout, headers))

    async def list_tenants(
        self,
        *,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> List[t.TenantInfo]:
        """List all tenants.

        `GET /v1/tenants`. Needs scope admin.
        """
        call = Call(
            "GET",
            "/v1/tenants",
            query={"limit": limit, "cursor": cursor},
        )
        return cast("List[t.TenantInfo]", await self._call(call, Options(timeout, headers)))

    async def create_tenant(
        self,
        body: t.CreateTenantRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.TenantInfo:
        """Create a tenant.

        `POST /v1/tenants`. Needs scope admin.
        """
        call = Call(
            "POST",
            "/v1/tenants",
            json=body,
        )
        return cast("t.TenantInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def get_tenant(
        self,
        id: str,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.TenantInfo:
        """Read one tenant.

        `GET /v1/tenants/{id}`. Needs scope admin.
        """
        call = Call(
            "GET",
            f"/v1/tenants/{segment(id)}",
        )
        return cast("t.TenantInfo", await self._call(call, Options(timeout, headers)))

    async def update_tenant(
        self,
        id: str,
        body: t.UpdateTenantRequest,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.TenantInfo:
        """Change a tenant's plan, status or ceilings.

        Omitted fields keep their value. null clears: the default plan, no billing id, the plan's
        ceiling.

        `PATCH /v1/tenants/{id}`. Needs scope admin.
        """
        call = Call(
            "PATCH",
            f"/v1/tenants/{segment(id)}",
            json=body,
        )
        return cast("t.TenantInfo", await self._call(call, Options(timeout, headers)))

    async def advance_tenant(
        self,
        id: str,
        body: t.AdvanceTenantRequest,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> t.TenantInfo:
        """Move the billing time of a tenant with a test clock forward.

        Machines that run are billed for the time in between; months that end become invoices.

        `POST /v1/tenants/{id}/clock`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/tenants/{segment(id)}/clock",
            json=body,
        )
        return cast("t.TenantInfo", await self._call(call, Options(timeout, headers, idempotency_key)))

    async def suspend_tenant(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """Suspend a tenant: all its calls are answered with 402.

        `POST /v1/tenants/{id}/suspend`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/tenants/{segment(id)}/suspend",
        )
        await self._call(call, Options(timeout, headers, idempotency_key))

    async def reactivate_tenant(
        self,
        id: str,
        *,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        """End a tenant's suspension.

        `POST /v1/tenants/{id}/reactivate`. Needs scope admin.
        """
        call = Call(
            "POST",
            f"/v1/tenants/{segment(id)}/reactivate",
        )
        await self._call(call, Options(timeout, headers, idempotency_key))
