# multus-rs in a distro's tree: `make download` fetches the files of multus.lock, `make embed` copies charts and manifest to where Go compiles
# them in, and `make generate` the Go sources, too.
#
#   make multus-lock MULTUS_URL=https://release.example/vX.Y.Z MULTUS_VERSION=X.Y.Z    pins another release; with MULTUS_KEY=release.pub
#                                                                                      only one that this key signed
#   make download MULTUS_FROM=https://mirror.example/vX.Y.Z                            fetches the same files from a mirror
#
# Each line of the lock has the sha256, version and address of a file. Files whose sha256 is right already are not fetched again.

# k3s or rke2: which charts and manifests this tree embeds.
MULTUS_DISTRO ?= k3s
MULTUS_LOCK ?= multus.lock
MULTUS_DIR ?= build/multus
# The directories that the tree embeds: charts are below the first one, the manifest is in the second.
MULTUS_STATIC ?= embedded/static/embed
MULTUS_DEPLOY ?= embedded/deploy/embed
MULTUS_CURL ?= curl --fail --location --silent --show-error --retry 3

# The files of a release that each distro embeds, by their flat names on a release's page and by their paths in a release. The generated Go
# source holds the charts of K3s, whose tree uses go-bindata.
MULTUS_FILES_k3s = ^(k3s-multus(-crd)?-[0-9][^/]*\.tgz$$|k3s-multus\.yaml$$|bindata-|charts/assets/k3s-multus(-crd)?/|manifests/k3s/|bindata/go/)
MULTUS_FILES_rke2 = ^(rke2-multus(-crd)?-[0-9][^/]*\.tgz$$|rke2-multus\.yaml$$|charts/assets/rke2-multus(-crd)?/|manifests/rke2/)
MULTUS_FILES = $(MULTUS_FILES_$(MULTUS_DISTRO))

# Shell functions that the targets use. A path comes from a file that was downloaded: it stays below the directory that it is written to.
define MULTUS_SHELL
set -eu; \
test -n '$(MULTUS_FILES)' || { echo "MULTUS_DISTRO=$(MULTUS_DISTRO): set k3s or rke2" >&2; exit 1; }; \
check_line() { \
	if ! echo "$$1" | grep -Eqx '[0-9a-f]{64}'; then \
		echo "$$3: '$$1' is not a sha256: it has to list checksums and paths" >&2; exit 1; \
	fi; \
	if ! echo "$$2" | grep -Eqx '[A-Za-z0-9._+-]+(/[A-Za-z0-9._+-]+)*' || echo "/$$2/" | grep -q '/\.\.*/'; then \
		echo "$$3: '$$2' is not a path below the release: ask its publisher" >&2; exit 1; \
	fi; \
}; \
locked_paths() { \
	base=$$(sed -n 's/^# release //p' $(MULTUS_LOCK)); \
	grep -v '^#' $(MULTUS_LOCK) | while read -r sum version address; do \
		path=$${address#"$$base"/}; check_line "$$sum" "$$path" $(MULTUS_LOCK); echo "$$path"; \
	done; \
}
endef

.PHONY: download embed generate multus-lock

download:
	@$(MULTUS_SHELL); \
	test -e $(MULTUS_LOCK) || { echo "$(MULTUS_LOCK) is missing: write it with make multus-lock" >&2; exit 1; }; \
	base=$$(sed -n 's/^# release //p' $(MULTUS_LOCK)); \
	is_right() { echo "$$1  $$2" | sha256sum --check --status 2>/dev/null; }; \
	lines=$$(grep -v '^#' $(MULTUS_LOCK)) || { echo "$(MULTUS_LOCK) names no file: write it with make multus-lock" >&2; exit 1; }; \
	echo "$$lines" | while read -r sum version address; do \
		path=$${address#"$$base"/}; check_line "$$sum" "$$path" $(MULTUS_LOCK); \
		file="$(MULTUS_DIR)/$$path"; \
		if is_right "$$sum" "$$file"; then continue; fi; \
		from=$(MULTUS_FROM); from=$${from:-$$base}/$$path; \
		mkdir -p "$$(dirname "$$file")"; \
		$(MULTUS_CURL) --output "$$file.part" "$$from"; \
		if ! is_right "$$sum" "$$file.part"; then \
			rm "$$file.part"; \
			echo "$$from has another sha256 than $(MULTUS_LOCK) requires: ask its publisher, or pin another release" >&2; \
			exit 1; \
		fi; \
		mv "$$file.part" "$$file"; \
		echo "$$path $$version"; \
	done

# Adds the charts and the manifest to what the tree embeds already, in place of those of another release.
embed: download
	@$(MULTUS_SHELL); \
	mkdir -p $(MULTUS_STATIC)/charts $(MULTUS_DEPLOY); \
	rm -f $(MULTUS_STATIC)/charts/*-multus-*.tgz; \
	paths=$$(locked_paths); \
	for path in $$paths; do \
		case "$$path" in \
			*.tgz) cp "$(MULTUS_DIR)/$$path" $(MULTUS_STATIC)/charts/ ;; \
			*.yaml) cp "$(MULTUS_DIR)/$$path" $(MULTUS_DEPLOY)/multus.yaml ;; \
		esac; \
	done

generate: embed
	@$(MULTUS_SHELL); \
	for package in static deploy; do \
		if [ -d bindata/$$package ]; then find bindata/$$package \( -name 'zz_*.go' -o -name no_stage.go \) -delete; fi; \
	done; \
	paths=$$(locked_paths); \
	for path in $$paths; do \
		case "$$path" in \
			bindata*) \
				file="$${path#bindata?}"; file="$${file#go/}"; package="$${file%%[-/]*}"; \
				mkdir -p "bindata/$$package"; cp "$(MULTUS_DIR)/$$path" "bindata/$$package/$${file#*[-/]}" ;; \
		esac; \
	done

# The whole of SHA256SUMS is checked before anything is written: an error page, a file of another version or a path that leads out of
# the tree changes nothing. With MULTUS_KEY the list is believed only when that key signed it.
multus-lock:
	@$(MULTUS_SHELL); \
	: "$${MULTUS_URL:?name the release: MULTUS_URL=https://…}" "$${MULTUS_VERSION:?name its version: MULTUS_VERSION=X.Y.Z}"; \
	new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	$(MULTUS_CURL) --output "$$new/sums" "$$MULTUS_URL/SHA256SUMS"; \
	if [ -n "$${MULTUS_KEY:-}" ]; then \
		$(MULTUS_CURL) --output "$$new/text" "$$MULTUS_URL/SHA256SUMS.sig" || { \
			echo "$$MULTUS_URL/SHA256SUMS.sig could not be fetched: try again; if the release has none (404), it is not signed: ask its publisher, or leave MULTUS_KEY out" >&2; exit 1; \
		}; \
		openssl base64 -d -in "$$new/text" -out "$$new/sig"; \
		if openssl pkey -pubin -in "$$MULTUS_KEY" -noout -text | grep -qi ed25519; then \
			set -- pkeyutl -verify -pubin -inkey "$$MULTUS_KEY" -rawin -in "$$new/sums" -sigfile "$$new/sig"; \
		else \
			set -- dgst -sha256 -verify "$$MULTUS_KEY" -signature "$$new/sig" "$$new/sums"; \
		fi; \
		openssl "$$@" >/dev/null || { \
			echo "$$MULTUS_URL/SHA256SUMS is not what $$MULTUS_KEY signed: correct MULTUS_KEY, or ask the release's publisher" >&2; exit 1; \
		}; \
	fi; \
	sums=$$(cat "$$new/sums"); \
	lines=$$(echo "$$sums" | while read -r sum path; do \
		check_line "$$sum" "$$path" "$$MULTUS_URL/SHA256SUMS"; \
		if echo "$$path" | grep -Eq '$(MULTUS_FILES)'; then echo "$$sum $$MULTUS_VERSION $$MULTUS_URL/$$path"; fi; \
	done); \
	for name in $(MULTUS_DISTRO)-multus $(MULTUS_DISTRO)-multus-crd; do \
		case "$$lines" in \
			*"/$$name-$$MULTUS_VERSION.tgz"*) ;; \
			*) echo "$$MULTUS_URL/SHA256SUMS has no $$name-$$MULTUS_VERSION.tgz: correct MULTUS_VERSION or MULTUS_URL" >&2; exit 1 ;; \
		esac; \
	done; \
	{ echo "# release $$MULTUS_URL"; echo "$$lines"; } > $(MULTUS_LOCK).new; \
	mv $(MULTUS_LOCK).new $(MULTUS_LOCK)

# The shell above reads these variables; make exports by itself only those of its command line.
export MULTUS_URL MULTUS_VERSION MULTUS_KEY
