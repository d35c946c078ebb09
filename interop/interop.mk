## interop      Java, JavaScript, Go and kcat clients, and Spark, against a broker (CLIENTS="java kcat" for some of them)
.PHONY: interop
interop: $(STAMP)
	$(BIN)/python interop/run.py $(CLIENTS)
